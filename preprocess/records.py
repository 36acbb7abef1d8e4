"""From the kept lines and their trees to records, index and report."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from tqdm import tqdm

from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu, example
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import manifests
from jaxsyn.data.store.rows import TOGETHER
from preprocess import constituents, report
from preprocess.inputs import Inputs
from preprocess.split import RawSplit


def write(
  folder: pathlib.Path,
  inputs: Inputs,
  vocabularies: Mapping[str, Vocabulary],
) -> dict[str, Any]:
  """Writes records, index and report of all splits.

  Args:
    folder: of text and trees already; records and report come beside them.
    inputs: what they are made from.
    vocabularies: side -> vocabulary.

  Returns: that part of the manifest.
  """
  # Here, not above: TFDS takes a second to load, and bad input is told first.
  from jaxsyn.data.store import tfds_builder

  data, prepare = inputs.config.data, inputs.config.prepare
  splits, sides = inputs.splits, prepare.parse.sides
  annotations = prepare.parse.annotations
  brackets = constituents.labels(splits.values())
  bracket_ids = schema.relation_ids(brackets)
  manifest = {
    "name": data.name,
    "version": tfds_builder.VERSION,
    "source_language": data.source_language,
    "target_language": data.target_language,
    "sides": list(sides),
    "relations": {side: sorted(inputs.train.relations[side]) for side in sides},
    **({"brackets": {"source": brackets}} if brackets else {}),
    **({"annotations": list(annotations)} if annotations and sides else {}),
  }
  known = manifests.encoding(manifest)
  known["vocabularies"] = (vocabularies["source"], vocabularies["target"])
  counts = {name: report.Counts(sides) for name in splits}

  def all_of(split: RawSplit) -> Iterator[dict[str, Any]]:
    return constituents.added(
      examples(split, known, counts[split.name]),
      split,
      vocabularies["source"],
      ids=bracket_ids,
      counts=counts[split.name],
    )

  title = _title(inputs, vocabularies)
  written = tfds_builder.write(
    folder,
    name=data.name,
    version=tfds_builder.VERSION,
    features=schema.tfds_features(
      sides,
      relations={s: sorted(inputs.train.relations[s]) for s in sides},
      brackets=bool(brackets),
      annotations=annotations,
    ),
    splits={
      name: (len(split.kept), all_of(split)) for name, split in splits.items()
    },
    shards=prepare.shards,
    about=tfds_builder.About(title, data.citation, data.homepage),
  )
  facts = {
    name: _facts(split, counts[name]) | written[name]
    for name, split in splits.items()
  }
  report.write(folder, title, facts, counts=counts, train=data.train)
  return {**manifest, "splits": facts}


def examples(
  split: RawSplit, known: Mapping[str, Any], counts: report.Counts
) -> Iterator[dict[str, Any]]:
  """The examples of a split in order, counted on the way.

  Args:
    split: with its kept lines and their trees.
    known: what `example.encode` must know of the data set.
    counts: added to.
  """

  def sentences(side: str) -> Iterator[str | conllu.Parse]:
    lines = split.lines(side)
    if side not in split.conllu:
      return iter(lines)
    text = f"kept lines of {split.file(side)}"
    return conllu.match(conllu.read(split.conllu[side]), lines, text)

  pairs = zip(split.numbers, *map(sentences, schema.SIDES))
  total = len(split.kept)
  with tqdm(
    total=total, desc=f"writing {split.name}", unit="pair", disable=None
  ) as bar:
    while some := list(itertools.islice(pairs, TOGETHER)):
      numbers, *both = zip(*some)
      rows = example.encode_all(*both, lines=numbers, **known)
      counts.add_all(rows)
      for made, *own in zip(rows.examples(), *both):
        texts = (one if isinstance(one, str) else one.text for one in own)
        yield {**made, **dict(zip(schema.TEXTS, texts))}
      bar.update(len(some))


def _facts(split: RawSplit, counts: report.Counts) -> dict[str, Any]:
  """What the manifest says of where a split came from."""
  return {
    "examples": len(split.kept),
    "lines": len(split.kept) + sum(split.dropped.values()),
    "dropped": split.dropped,
    "unparsed": counts.unparsed,
    "blank": counts.blank,
    "files": [file.name for file in split.pairs.files],
    "raw_sha256": split.pairs.sha256,
    **({"brackets": counts.brackets} if split.brackets else {}),
  }


def _title(inputs: Inputs, vocabularies: Mapping[str, Vocabulary]) -> str:
  """The data set in a line."""
  data, given = inputs.config.data, inputs.train.given
  trees = " and ".join(
    f"{side} side ({parser.path.name if parser and side not in given else 'CoNLL-U'})"
    for side, parser in inputs.parsers.items()
  )
  sizes = " and ".join(
    f"{v.size:,}" for v in dict.fromkeys(vocabularies.values())
  )
  return (
    f"{data.name}: {data.source_language} to {data.target_language}, vocabulary"
    f" of {sizes} subwords, {f'trees on the {trees}' if trees else 'no trees'}"
  )
