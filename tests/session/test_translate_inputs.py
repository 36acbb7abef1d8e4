"""Requests of input files: text, JSON lines, prefixes, and invalid lines."""

import json
import re
import time
import types

import pytest

from jaxsyn.data.sentence.text import PAUSE, Faulty
from jaxsyn.decode.requests import Request, from_json
from jaxsyn.errors import InputError
from jaxsyn.session import inputs


def read(tmp_path, text, *, name="a.txt", prefix=None, errors="strict", **more):
  """Returns the requests of a file, and messages about invalid lines."""
  path = tmp_path / name
  path.write_text(text, encoding="utf-8")
  arguments = {"input": str(path), "prefix": "", "errors": errors}
  if prefix is not None:
    (tmp_path / "prefix").write_text(prefix, encoding="utf-8")
    arguments["prefix"] = str(tmp_path / "prefix")
  arguments |= {"json": False, "conllu": False, **more}
  faults = []
  items = inputs.of_flags(types.SimpleNamespace(**arguments), faults)
  return [item for item in items if item is not PAUSE], faults


def test_lines_have_indices(tmp_path):
  result, faults = read(tmp_path, "a b\n\nc\n")
  assert result == [Request(t, index=i) for i, t in enumerate(["a b", "", "c"])]
  assert not faults


def test_json_lines(tmp_path):
  result, _ = read(
    tmp_path,
    '{"text": "a", "target_prefix": "Ein "}\n\n{"text": "ü"}\n',
    name="a.jsonl",
  )
  assert result == [
    Request("a", "Ein ", index=0),
    Request("", index=1),
    Request("ü", index=2),
  ]


TREE = "1\ta\t_\t_\t_\t_\t2\tdet\t_\t_\n2\tcow\t_\t_\t_\t_\t{}\troot\t_\t_\n"


def test_json_lines_with_trees(tmp_path):
  line = json.dumps({"conllu": TREE.format(0), "target_prefix": "d"})
  ((result,), _) = read(tmp_path, line + "\n", name="a.jsonl")
  assert (result.source.text, result.source.head_W) == ("a cow", (1, 1))
  assert result.prefix == "d"


@pytest.mark.parametrize(
  "fields, message",
  [
    ({"conllu": TREE.format(1)}, "conllu:1: the sentence has no root"),
    ({"conllu": ""}, "'conllu' must be one sentence, got 0."),
    ({"conllu": f"{TREE.format(0)}\n" * 2}, "must be one sentence, got 2."),
    ({"conllu": 1}, "'conllu' must be a string, got 1."),
    ({"conllu": "", "text": ""}, 'has both "text" and "conllu"'),
  ],
)
def test_rejects_invalid_trees(fields, message):
  with pytest.raises(InputError, match=message):
    from_json(json.dumps(fields))


@pytest.mark.parametrize(
  "line, message",
  [
    ("text", "the line is not JSON"),
    ("[1]", 'the line is not an object with "text"'),
    ('{"txt": "a"}', 'the line is not an object with "text"'),
    ('{"text": 1}', "'text' must be a string, got 1"),
    ('{"text": "a", "target_prefix": 1}', "'target_prefix' must be a string"),
    ("[" * 100_000, "nested more than 100 levels deep"),
    ('{"text": ' + "[" * 200 + "]" * 200 + "}", "nested more than 100 levels"),
    ('{"text": "a\\ud800"}', "half of a surrogate pair (\\ud800) in 'text'"),
    (
      '{"text": "a", "other": ["\\udc00"]}',
      "surrogate pair (\\udc00) in 'other[0]'",
    ),
    ('{"text": "a\\u0000"}', "has NUL (\\u0000) in 'text'. Remove it."),
    ('{"text": "a", "text": "b"}', "has the name 'text' twice"),
    ('{"text": "a\\nb"}', "'text' has a line break"),
    (
      '{"text": "a", "target_prefix": "\\r"}',
      "'target_prefix' has a line break",
    ),
    ('{"text": NaN}', "NaN is not a number of JSON"),
    (
      f'{{"text": "a", "target_prefix": "{"a" * 180_000}"}}',
      "'target_prefix' has 180,000 characters; at most 2,000",
    ),
    (
      '{"text": "a", "target_prefx": ""}',
      "unknown name 'target_prefx'. Did you",
    ),
  ],
)
def test_rejects_invalid_requests(tmp_path, line, message):
  with pytest.raises(InputError, match=re.escape(message)):
    from_json(line)
  with pytest.raises(InputError, match=r"a\.txt:2: .* --errors skip"):
    read(tmp_path, f'{{"text": "a"}}\n{line}\n', json=True)
  result, faults = read(
    tmp_path, f'{line}\n{{"text": "a"}}\n', json=True, errors="skip"
  )
  assert isinstance(result[0], Faulty) and result[1] == Request("a", index=1)
  assert "a.txt:1: " in faults[0]


def test_checks_many_strings_under_a_long_name_in_time():
  """The time does not grow with the product of their sizes."""
  line = json.dumps({"a" * 400_000: ["b"] * 100_000})
  began = time.process_time()
  with pytest.raises(InputError, match="is not an object with"):
    from_json(line)
  assert time.process_time() - began < 1
  line = json.dumps({"a" * 400: [{"b" * 400: ["\0"]}]})
  field = "a" * 80 + "[0]"
  with pytest.raises(InputError, match=re.escape(f"in '{field[:80]}'")):
    from_json(line)


def test_accepts_a_long_sentence_of_a_json_line(tmp_path):
  """It is truncated later, like a line of raw text."""
  long = "a" * 2001
  rows = TREE.format(0).replace("cow", long)
  text = "\n".join(
    json.dumps(one) for one in [{"text": long}, {"conllu": rows}]
  )
  (one, other), faults = read(tmp_path, text + "\n", json=True)
  assert one == Request(long, index=0) and not faults
  assert other.source.text == f"a {long}"


def test_a_file_of_prefixes(tmp_path):
  result, _ = read(tmp_path, "a\nb\nc\n", prefix="Der \n\nEi\n")
  assert [one.prefix for one in result] == ["Der ", "", "Ei"]
  with pytest.raises(
    InputError, match=r"prefix has 2 lines, and .*a\.txt more"
  ):
    read(tmp_path, "a\nb\nc\n", prefix="Der\n\n")
  with pytest.raises(InputError, match=r"a line of JSON has its own"):
    read(tmp_path, "{}\n", json=True, prefix="Der\n")
  with pytest.raises(
    InputError, match=r"prefix has more lines than .*a\.txt, which has 1"
  ):
    read(tmp_path, "a\n", prefix="Der\n\n")


def test_rejects_a_long_prefix_of_a_file(tmp_path):
  prefix = "Der\n" + "a" * 2001 + "\nEi\n"
  message = r"prefix:2: 'prefix' has 2,001 characters; at most 2,000"
  with pytest.raises(InputError, match=message):
    read(tmp_path, "a\nb\nc\n", prefix=prefix)
  result, faults = read(tmp_path, "a\nb\nc\n", prefix=prefix, errors="skip")
  assert [getattr(one, "prefix", None) for one in result] == ["Der", None, "Ei"]
  assert len(faults) == 1
