"""What is answered, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode.translator import EMPTY_TRANSLATION, Translation
from jaxsyn.errors import InputError
from jaxsyn.inspection.sentence import MATRICES, fields_of, render_json
from jaxsyn.serving.batching import Answer
from jaxsyn.serving.runs import Served


def translation(answer: Answer, nbest: int) -> dict[str, Any]:
  """A sentence's."""
  nbest_list = answer.nbest[:nbest] or [EMPTY_TRANSLATION]
  return {
    "text": nbest_list[0].text,
    "cut": answer.cut,
    "nbest": translations(nbest_list),
  }


def translations(hypotheses: Sequence[Translation]) -> list[dict[str, Any]]:
  return [
    {"text": one.text, "score": one.score, "log_p": one.log_p}
    for one in hypotheses
  ]


def parsed(parse: Parse) -> dict[str, Any]:
  """A parse, and its CoNLL-U, which may come back with other heads."""
  return {
    "text": parse.text,
    "conllu": conllu.to_text(parse, "1", is_complete=True),
    "words": [parse.text[a:b] for a, b in zip(parse.start_W, parse.end_W)],
    "heads": list(parse.head_W),
    "relations": list(parse.relation_W),
    "parsed": parse.parsed,
  }


def inspected(
  run: Served,
  source: Source,
  layers: frozenset[int] | None,
  is_wanted: Callable[[], bool],
) -> bytes:
  """Everything that is seen of a sentence.

  Args:
    run: that looks.
    source: a raw line, or its parse.
    layers: whose matrices are wanted; None: of all.
    is_wanted: whether somebody still waits; else the answer is empty.

  Raises:
    InputError: of an ensemble; or it has no words, or too many, or no tree.
  """
  inspector = run.inspector
  parse = run.reading.parse(source) if isinstance(source, str) else source
  read = inspector.read(parse)
  if read is None:
    raise InputError("the sentence has no words.")
  nbests = run.session.search([read.example], is_wanted=lambda _: is_wanted())
  if not is_wanted():
    return b""
  ((_, seen),) = inspector.inspect([read], nbests)
  fields = fields_of(seen, 1)
  for name in MATRICES:
    fields[name] = [
      entry
      for entry in fields[name]
      if layers is None or entry["layer"] in layers
    ]
  fields["conllu"] = conllu.to_text(parse, "1", is_complete=True)
  fields["nbest"] = translations(nbests[0])
  return render_json(fields).encode()
