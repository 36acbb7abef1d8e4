"""Requests of input files: text, JSON lines, prefixes, and invalid lines."""

import json
import re
import types

import pytest

from jaxsyn.data.sentence.text import PAUSE
from jaxsyn.decode.requests import Request
from jaxsyn.errors import InputError
from jaxsyn.session import inputs

TREE = "1\ta\t_\t_\t_\t_\t2\tdet\t_\t_\n2\tcow\t_\t_\t_\t_\t{}\troot\t_\t_\n"


def read(tmp_path, text, *, name="a.txt", errors="strict", **more):
  """Returns the requests of a file, and messages about invalid lines."""
  path = tmp_path / name
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  arguments = {"input": str(path), "errors": errors}
  arguments |= {"json": False, "conllu": False, **more}
  faults = []
  items = inputs.of_flags(types.SimpleNamespace(**arguments), faults)
  return [item for item in items if item is not PAUSE], faults


def test_lines_have_indices(tmp_path):
  result, faults = read(tmp_path, "a b\n\nc\n")
  assert result == [
    Request("a b", index=0),
    Request("", index=1),
    Request("c", index=2),
  ]
  assert not faults
  with pytest.raises(InputError, match="--json and --conllu"):
    read(tmp_path, "{}\n", json=True, conllu=True)


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
  ("text", "the line is not valid JSON"),
  ("[1]", 'the line is not an object with "text"'),
  ('{"txt": "a"}', 'the line is not an object with "text"'),
  ('{"text": 1}', "'text' must be a string, got 1"),
  ('{"text": "a", "target_prefix": 1}', "'target_prefix' must be a string"),
  ("[" * 100_000, "it is nested too deeply"),
  (
    '{"text": ' + "[" * 200 + "]" * 200 + "}",
    "'text' must be a string, got a list",
  ),
  ('{"text": "a\\ud800"}', "half of a surrogate pair (\\ud800)"),
  ('{"text": "a", "x": ["\\udc00"]}', "half of a surrogate pair (\\udc00)"),
  ('{"text": "a\\u0000"}', "'text' has NUL (\\u0000). Remove it."),
  ('{"text": "a", "target_prefix": "\\u0000"}', "'target_prefix' has NUL"),
  ('{"conllu": "\\u0000"}', "'conllu' has NUL"),
  ('{"text": "a", "text": "b"}', "an object in it has the key 'text' twice"),
  ('{"text": "a\\nb"}', "'text' has a line break"),
  ('{"text": "a", "target_prefix": "\\r"}', "'target_prefix' has a line break"),
  ('{"text": NaN}', "'text' must be a string, got NaN"),
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
  assert (result[0].source.text, result[0].index) == ("", 0)
  assert result[1] == Request("a", index=1)
  assert "a.txt:1: " in faults[0]


def test_skips_lines_that_are_not_text(tmp_path):
  for line, options in (
    (b"a\xffb\n", {}),
    (b'{"text": "a\xffb"}\n', {"json": True}),
  ):
    (skipped, good), faults = read(
      tmp_path, line + b'{"text": "b"}\n', errors="skip", **options
    )
    assert (skipped.source.text, skipped.index, good.index) == ("", 0, 1)
    assert len(faults) == 1 and "a.txt:1: byte" in faults[0]
