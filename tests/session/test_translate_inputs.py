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

TREE = "1\ta\t_\t_\t_\t_\t2\tdet\t_\t_\n2\tcow\t_\t_\t_\t_\t{}\troot\t_\t_\n"


def read(tmp_path, text, *, name="a.txt", prefix=None, errors="strict", **more):
  """Returns the requests of a file, and messages about invalid lines."""
  path = tmp_path / name
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  arguments = {"input": str(path), "prefix": "", "errors": errors}
  if prefix is not None:
    (tmp_path / "prefix").write_text(prefix, encoding="utf-8")
    arguments["prefix"] = str(tmp_path / "prefix")
  arguments |= {"json": False, "conllu": False, **more}
  faults = []
  items = inputs.of_flags(types.SimpleNamespace(**arguments), faults)
  return [item for item in items if item is not PAUSE], faults


def test_lines_have_indices_and_prefixes(tmp_path):
  result, faults = read(tmp_path, "a b\n\nc\n", prefix="Der \n\nEi\n")
  assert result == [
    Request("a b", "Der ", index=0),
    Request("", index=1),
    Request("c", "Ei", index=2),
  ]
  assert not faults


def test_json_lines_with_text_and_trees(tmp_path):
  long = "a" * 2001  # truncated later, like a line of raw text
  lines = [
    {"text": "ü", "target_prefix": "Ein "},
    {"conllu": TREE.format(0), "target_prefix": "d"},
    {"text": long},
  ]
  text = "\n".join(map(json.dumps, lines)) + "\n\n"
  (one, tree, third, empty), faults = read(tmp_path, text, name="a.jsonl")
  assert one == Request("ü", "Ein ", index=0)
  assert (tree.source.text, tree.source.head_W) == ("a cow", (1, 1))
  assert (tree.prefix, tree.index) == ("d", 1)
  assert (third, empty) == (Request(long, index=2), Request("", index=3))
  assert not faults


INVALID = [
  ("text", "the line is not JSON"),
  ("[1]", 'the line is not an object with "text"'),
  ('{"txt": "a"}', 'the line is not an object with "text"'),
  ('{"text": 1}', "'text' must be a string, got 1"),
  ('{"text": "a", "target_prefix": 1}', "'target_prefix' must be a string"),
  ("[" * 100_000, "nested more than 100 levels deep"),
  ('{"text": ' + "[" * 200 + "]" * 200 + "}", "nested more than 100 levels"),
  ('{"text": "a\\ud800"}', "half of a surrogate pair (\\ud800) in 'text'"),
  ('{"text": "a", "x": ["\\udc00"]}', "surrogate pair (\\udc00) in 'x[0]'"),
  ('{"text": "a\\u0000"}', "has NUL (\\u0000) in 'text'. Remove it."),
  ('{"text": "a", "text": "b"}', "has the name 'text' twice"),
  ('{"text": "a\\nb"}', "'text' has a line break"),
  ('{"text": "a", "target_prefix": "\\r"}', "'target_prefix' has a line break"),
  ('{"text": NaN}', "NaN is not a number of JSON"),
  (
    json.dumps({"text": "a", "target_prefix": "a" * 2001}),
    "'target_prefix' has 2,001 characters; at most 2,000",
  ),
  ('{"text": "a", "target_prefx": ""}', "unknown name 'target_prefx'. Did you"),
  (
    json.dumps({"conllu": TREE.format(1)}),
    "conllu:1: the sentence has no root",
  ),
  ('{"conllu": ""}', "'conllu' must be one sentence, got 0."),
  (json.dumps({"conllu": f"{TREE.format(0)}\n" * 2}), "one sentence, got 2."),
  ('{"conllu": 1}', "'conllu' must be a string, got 1."),
  ('{"conllu": "", "text": ""}', 'has both "text" and "conllu"'),
]


@pytest.mark.parametrize("line, message", INVALID)
def test_rejects_or_skips_invalid_lines(tmp_path, line, message):
  with pytest.raises(InputError) as error:
    read(tmp_path, f'{{"text": "a"}}\n{line}\n', json=True)
  assert re.search(r"a\.txt:2: .* --errors skip", str(error.value))
  assert message in str(error.value)
  result, faults = read(
    tmp_path, f'{line}\n{{"text": "a"}}\n', json=True, errors="skip"
  )
  assert isinstance(result[0], Faulty) and result[1] == Request("a", index=1)
  assert "a.txt:1: " in faults[0]


def test_replaces_unreadable_parts_of_text_but_not_of_json(tmp_path):
  (text,), faults = read(tmp_path, b"a\xffb\n", errors="replace")
  assert text.source.startswith("a") and len(faults) == 1
  line = b'{"text": "a\xffb"}\n'
  (skipped,), faults = read(tmp_path, line, json=True, errors="replace")
  assert isinstance(skipped, Faulty) and len(faults) == 1


def test_checks_many_strings_under_a_long_name_in_time():
  """The time does not grow with the product of their sizes."""
  line = json.dumps({"a" * 400_000: ["b"] * 100_000})
  began = time.process_time()
  with pytest.raises(InputError, match="is not an object with"):
    from_json(line)
  assert time.process_time() - began < 1
  line = json.dumps({"a" * 400: [{"b" * 400: ["\0"]}]})
  with pytest.raises(InputError, match=f"in '{'a' * 80}'"):
    from_json(line)


def test_rejects_invalid_files_of_prefixes(tmp_path):
  lines = "a\nb\nc\n"
  long = "Der\n" + "a" * 2001 + "\nEi\n"
  for prefix, message in [
    ("Der\n\n", r"prefix has 2 lines, and .*a\.txt more"),
    ("Der\n\n\n\n", r"prefix has more lines than .*a\.txt, which has 3"),
    (long, r"prefix:2: 'prefix' has 2,001 characters; at most 2,000"),
  ]:
    with pytest.raises(InputError, match=message):
      read(tmp_path, lines, prefix=prefix)
  result, faults = read(tmp_path, lines, prefix=long, errors="skip")
  assert [getattr(one, "prefix", None) for one in result] == ["Der", None, "Ei"]
  assert len(faults) == 1
  for more in ({"prefix": "Der\n"}, {"conllu": True}):
    with pytest.raises(InputError, match=r"--(prefix|conllu)\b"):
      read(tmp_path, "{}\n", json=True, **more)
