"""The config file of a corpus: short, and every choice with its rule."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Mapping

from jaxsyn.storage import checksums
from jaxsyn.survey.choices import ChosenTraining, ChosenValue
from jaxsyn.survey.parsers import ParserChoice

_CHECKSUM = "# `jaxsyn new` replaces this file only while it is unedited: "


@dataclasses.dataclass(frozen=True)
class ConfigPlan:
  """What the config says.

  Attributes:
    name: of the data set.
    data: folder of what is prepared, beside the config.
    languages: of source and target.
    raw_dir: folder of the raw files; "": that of the config.
    splits: name -> entry of config.prepare.splits; the training split first.
    pairs: to train on.
    held_out: of splits that are cut off; None where there are none.
    vocabulary: its size.
    coverage: the share of characters that it covers.
    training: the model and its updates.
    parsers: side -> where its trees come from.
    tokenizer: what BLEU takes for words.
    commands: what the head of the file says.
  """

  name: str
  data: str
  languages: tuple[str, str]
  raw_dir: str
  splits: Mapping[str, tuple[str, ...]]
  pairs: int
  held_out: ChosenValue | None
  vocabulary: ChosenValue
  coverage: float
  training: ChosenTraining
  parsers: Mapping[str, ParserChoice]
  tokenizer: str
  commands: tuple[str, ...]


def content(plan: ConfigPlan) -> str:
  """The Python of the file."""
  large = ""
  if plan.training.dropout:
    large = "from jaxsyn.configs.papers import paper\n"
  head = (
    f"{plan.languages[0]} to {plan.languages[1]}: {plan.pairs:,} pairs to train "
    "on."
  )
  commands = "".join(f"  {_in_docstring(line)}\n" for line in plan.commands)
  body = "".join(f"  {line}".rstrip() + "\n" for line in _body(plan))
  text = (
    f'"""{head}\n\nWritten by `jaxsyn new`; change what you like.'
    f'\n\n{commands}"""\n\nimport pathlib\n\n'
    f"from jaxsyn.configs import base, systems\n{large}\n"
    "HERE = pathlib.Path(__file__).resolve().parent\n\n\n"
    f'def get_config(system="transformer"):\n{body}'
  )
  return f"{text}\n\n{_CHECKSUM}{checksums.crc32c(text.encode())}\n"


def is_unedited(text: str, plan: ConfigPlan | None = None) -> bool:
  """Returns whether a file is as `content` wrote it.

  Args:
    text: of the file.
    plan: also checks that the file is for the corpus of this plan.
  """
  above, mark, crc = text.rpartition(f"\n\n{_CHECKSUM}")
  if not mark or crc != f"{checksums.crc32c(above.encode())}\n":
    return False
  corpus = [_data_set(plan), *_splits(plan)] if plan else ()
  return {f"  {line}" for line in corpus} <= {*above.splitlines()}


def _body(plan: ConfigPlan) -> Iterator[str]:
  yield _data_set(plan)
  yield f'config.data.directory = str(HERE / "{plan.data}")'
  yield ""
  yield from _splits(plan)
  yield ""
  yield from _trees(plan)
  yield ""
  yield from _comment(f"{plan.vocabulary.rule}.")
  yield f"config.prepare.vocabulary.size = {plan.vocabulary.value}"
  if plan.coverage < 1:
    yield from _comment("Rarer characters are unknown; there are many.")
    yield f"config.prepare.vocabulary.character_coverage = {plan.coverage}"
  yield ""
  yield from _training(plan)
  yield from _comment(f"Of BLEU: {plan.tokenizer}")
  yield "return systems.apply(config, system)"


def _data_set(plan: ConfigPlan) -> str:
  names = ", ".join(map(_quoted, (plan.name, *plan.languages)))
  return f"config = base.data_set({names})"


def _splits(plan: ConfigPlan) -> Iterator[str]:
  yield f"config.prepare.raw_dir = {_quoted(plan.raw_dir) if plan.raw_dir else 'str(HERE)'}"
  if plan.held_out:
    yield from _comment(
      f"Held out: {plan.held_out.rule}; the first lines. A third entry takes "
      "lines, from 1."
    )
  for name, entry in plan.splits.items():
    words = ", ".join(map(_quoted, entry)) + "," * (len(entry) == 1)
    yield f"config.prepare.splits.{name} = ({words})"


def _trees(plan: ConfigPlan) -> Iterator[str]:
  sides = [side for side, parser in plan.parsers.items() if parser.is_available]
  for parser in plan.parsers.values():
    yield from _comment(parser.why)
  words = ", ".join(map(_quoted, sides)) + "," * (len(sides) == 1)
  yield f"config.prepare.parse.sides = ({words})"
  for side in sides:
    if model := plan.parsers[side].model:
      yield f"config.prepare.parse.{side}.udpipe.model = {_quoted(model)}"


def _training(plan: ConfigPlan) -> Iterator[str]:
  updates, dropout = plan.training.updates, plan.training.dropout
  if dropout:
    yield from _comment(
      f"The base Transformer, {updates.rule} by Bugliarello & Okazaki 2020; for "
      "a GPU, and not measured by jaxsyn."
    )
    yield f"paper.base_transformer(config, dropout={dropout})"
    yield "config.batch.update(tokens=32_768, length_multiple=4)"
    yield "config.optimiser.learning_rate = 1e-3"
    yield "config.optimiser.inverse_sqrt.warmup = 8000"
    yield f"config.train.steps = {updates.value}"
    return
  yield from _comment(
    "Transformer-Tiny, batches of 2,048 subwords, Muon: for some ten thousand "
    "pairs."
  )
  yield "base.small_corpus(config)"
  yield from _comment(
    f"{updates.rule}; fewer where ten validations bring nothing."
  )
  interval = max(100, updates.value // 20)
  yield f"config.train.update(steps={updates.value}, patience=10)"
  yield f"config.train.update(evaluate_every={interval}, save_every={interval})"


def _comment(text: str) -> Iterator[str]:
  text = text[:1].upper() + text[1:]
  for line in textwrap.wrap(text, 76, break_long_words=False):
    yield f"# {line}"


def _quoted(text: str) -> str:
  return json.dumps(text, ensure_ascii=False)


def _in_docstring(text: str) -> str:
  return text.replace("\\", "\\\\").replace('"', '\\"')
