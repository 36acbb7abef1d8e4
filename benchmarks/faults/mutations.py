"""Inputs that people, parsers and programs got wrong, by the million.

Each is read by the code that reads it in use. What is accepted must keep the
promises of its type: indices within bounds, trees without circles, names that
stay in their folder.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import itertools
import json
import math
import pathlib
import struct
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.faults import mutants
from benchmarks.faults.crew import Silent, Suite
from benchmarks.faults.world import World, quiet
from jaxsyn.config import as_dict, read_config
from jaxsyn.data.schema import UTF8
from jaxsyn.data.sentence import conllu, tree
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.linearise import CLOSE
from jaxsyn.data.sentence.text import lines_of
from jaxsyn.data.store import fetch, layout, manifests, tfrecord
from jaxsyn.data.store.decoding import InvalidExampleError, decode
from jaxsyn.data.store.example_check import check
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess import penn

Rng = np.random.Generator


@dataclasses.dataclass
class MutationCases:
  """What cases of one process share.

  Attributes:
    world: undamaged.
    place: a folder of this process, for files that are read by name.
  """

  world: World
  place: tempfile.TemporaryDirectory

  @property
  def folder(self) -> pathlib.Path:
    return pathlib.Path(self.place.name)

  @functools.cached_property
  def manifest(self) -> dict[str, Any]:
    return json.loads((self.world.prepared / "manifest.json").read_text())

  @functools.cached_property
  def sentences(self) -> list[tuple[str, str]]:
    """(line, its CoNLL-U) of the training split."""
    trees = self.world.prepared / "conllu" / "train.source.conllu.gz"
    text = self.world.prepared / "text" / "train.source.gz"
    blocks = gzip.decompress(trees.read_bytes()).decode().strip().split("\n\n")
    return list(
      zip(gzip.decompress(text.read_bytes()).decode().split("\n"), blocks)
    )

  @functools.cached_property
  def payloads(self) -> list[bytes]:
    return list(tfrecord.scan(self.shard))

  @property
  def shard(self) -> pathlib.Path:
    (found,) = self.world.prepared.glob("quickstart/*/*-train.tfrecord*")
    return found


def _open(folder: pathlib.Path) -> MutationCases:
  return MutationCases(World(folder), tempfile.TemporaryDirectory())


def _some(items: list, rng: Rng) -> Any:
  return items[int(rng.integers(len(items)))]


def _must(holds: bool, what: str) -> None:
  if not holds:
    raise Silent(what)


def sentence(state: MutationCases, rng: Rng) -> None:
  line, block = _some(state.sentences, rng)
  blocks = conllu.blocks_of_text(mutants.conllu(block, rng) + "\n\n", "mutant")
  parse = conllu.attach(blocks, line)
  words = len(parse.head_W)
  _must(parse.text == line, "another text")
  _must(all(0 <= h < words for h in parse.head_W), f"heads {parse.head_W}")
  spans = list(zip(parse.start_W, parse.end_W))
  _must(all(0 <= a <= b <= len(line) for a, b in spans), f"offsets {spans}")
  for word in range(words):  # up to a root in fewer steps than words
    for _ in range(words):
      word = parse.head_W[word]
    _must(parse.head_W[word] == word, f"a circle in {parse.head_W}")
  distances = tree.tree_distance(np.array(parse.head_W, np.int32))
  _must(distances.shape == (words, words), "distances of other words")


def frame(state: MutationCases, rng: Rng) -> None:
  size = sum(len(p) + 16 for p in state.payloads[:3])
  with state.shard.open("rb") as file:
    data = file.read(size)
  path = state.folder / "frames"
  if rng.random() < 0.2:  # a length that lies, its checksum right
    length = struct.pack("<Q", int(rng.integers(2**63, dtype=np.uint64)) >> 8)
    crc = struct.pack("<I", tfrecord.masked_crc(length))
    path.write_bytes(length + crc + data[tfrecord.HEADER :])
  else:
    path.write_bytes(mutants.harmed(data, rng))
  passed = set(tfrecord.scan(path))
  known = set(state.payloads[:3])
  _must(passed <= known, "another payload passed its checksum")


def payload(state: MutationCases, rng: Rng) -> None:
  decode_one, check = _reading(state.world.prepared)
  mutant = mutants.payload(_some(state.payloads, rng), rng)
  try:
    rows = decode_one(mutant)
    check(rows)
  except InvalidExampleError as error:  # records add the file and the number
    raise InputError(error.why) from None
  example = rows.examples()[0]
  sizes = {s: a["size"] for s, a in state.manifest["vocabulary"].items()}
  for side in ("source", "target"):
    ids = example[f"{side}_id"]
    _must(len(ids) > 0 and ids[-1] == 3, f"{side}_id without an end")
    _within(ids, 0, sizes[side], f"{side}_id")
    if f"{side}_head" not in example:
      continue
    head, word, middle, relation, square = (
      example[f"{side}_{fact}"]
      for fact in ("head", "word", "parent_mid", "relation", "tree_distance")
    )
    labels = len(state.manifest["relations"][side])
    _must(len(word) == len(middle) == len(ids), f"{side}: lengths")
    _within(word, -1, max(len(head), 1), f"{side}_word")
    _within(head, 0, len(head), f"{side}_head")
    _must(len(relation) == len(head), f"{side}_relation")
    _within(relation, 0, labels + 1, f"{side}_relation")
    _must(square.size == len(head) ** 2, f"{side}_tree_distance")
    _within(middle, 0, len(ids), f"{side}_parent_mid")


def _within(array: np.ndarray, least: float, end: float, name: str) -> None:
  """Silent where a number is below `least`, not below `end`, or is none."""
  _must(bool(((array >= least) & (array < end)).all()), f"{name} {array}")


@functools.cache
def _reading(directory: pathlib.Path) -> tuple[Callable, Callable]:
  """How records of a folder are decoded and checked."""
  manifest = manifests.read(directory)
  names = tuple(manifests.features(manifest))

  def decode_one(payload: bytes) -> Rows:
    begin, end = np.array([0]), np.array([len(payload)])
    wanted = (*names, *UTF8)
    return decode(payload, begin, end, stored=names, wanted=wanted)

  return decode_one, functools.partial(check, manifest=manifest)


def given(state: MutationCases, rng: Rng) -> None:
  """CoNLL-U of several lines, as users give it."""
  first = int(rng.integers(len(state.sentences) - 4))
  lines, real = zip(*state.sentences[first : first + 4])
  number = int(rng.integers(4))
  blocks = list(real)
  what = int(rng.integers(4))
  if what == 0:
    del blocks[number]
  elif what == 1:
    blocks.insert(number, _some(blocks, rng))
  else:
    blocks[number] = mutants.conllu(blocks[number], rng)
  data = "".join(f"{block}\n\n" for block in blocks).encode()
  data = data if what < 3 else mutants.harmed(data, rng)
  packed = rng.random() < 0.2
  path = state.folder / ("given.conllu.gz" if packed else "given.conllu")
  path.write_bytes(gzip.compress(data, 1) if packed else data)
  found = list(conllu.match(conllu.read(path), lines, "lines"))
  _must([parse.text for parse in found] == list(lines), "other lines")
  for parse in found:
    spans = zip(parse.start_W, parse.end_W)
    words = "".join(parse.text[start:end] for start, end in spans)
    _must(visible(words) == visible(parse.text), f"words {words!r}")


def download(state: MutationCases, rng: Rng) -> None:
  """A file that was fetched, or what stands beside it, changed since."""
  path = state.folder / "corpus.txt"
  record = state.folder / "corpus.txt.sha256"
  nowhere = fetch.Download("http://127.0.0.1:9/corpus.txt")
  data = b"".join(state.payloads[:2])
  path.write_bytes(data)
  record.unlink(missing_ok=True)
  with quiet():
    right = fetch.get(path, nowhere)
    harmed = _some([path, record], rng)
    harmed.write_bytes(mutants.harmed(harmed.read_bytes(), rng))
    found = fetch.get(path, nowhere)
  _must(found == right and path.read_bytes() == data, "another file")


def text(state: MutationCases, rng: Rng) -> None:
  lines = [line for line, _ in itertools.islice(state.sentences, 20)]
  lines[3] = "日本語の文 \u2028 und Grüße\r"
  data = mutants.harmed("\n".join([*lines, ""]).encode(), rng)
  packed = rng.random() < 0.3
  path = state.folder / ("lines.gz" if packed else "lines")
  whole = gzip.compress(data, 1)
  path.write_bytes(mutants.harmed(whole, rng) if packed else data)
  found = list(lines_of(path))
  raw = data.decode("utf-8", "replace")  # refused before if it is not
  wanted = raw.removeprefix("\ufeff").split("\n")
  wanted = [line.removesuffix("\r") for line in wanted]
  wanted = wanted if wanted[-1] else wanted[:-1]
  _must(found == wanted, f"other lines of {path.name}")


def brackets(state: MutationCases, rng: Rng) -> None:
  line = b"(ROOT (S (NP (DT The) (JJ small) (NN dog)) (VP (VBZ sees)) (. .)))"
  mutant = mutants.harmed(line, rng).decode(errors="replace")
  parsed = penn.parse(mutant, "mutant:1")
  if parsed is None:
    return
  depth = 0
  for sign in parsed.signs:
    if sign == CLOSE and not isinstance(sign, str):
      depth -= 1
    elif isinstance(sign, str):
      depth += 1
    _must(depth >= 0, "a bracket closed that none opened")
  _must(depth == 0, "brackets left open")


def manifest(state: MutationCases, rng: Rng) -> None:
  old = (state.world.prepared / "manifest.json").read_bytes()
  path = state.folder / "manifest.json"
  path.write_bytes(mutants.json_text(old, rng))
  found = manifests.read(state.folder)
  files: list[pathlib.Path | None] = []
  for side in ("source", "target"):
    files.append(state.folder / found["vocabulary"][side]["file"])
    files.append(layout.parser_file(state.folder, found, side))
  for name, split in found["splits"].items():
    files.append(layout.text_file(state.folder, name, "source"))
    inside = layout.tfds_folder(state.folder, found)
    files += [inside / shard["file"] for shard in split["shards"]]
  for file in filter(None, files):
    resolved = pathlib.Path(file).resolve()
    _must(resolved.is_relative_to(state.folder.resolve()), f"leaves: {file}")


def run_page(state: MutationCases, rng: Rng) -> None:
  from jaxsyn.trained import workdir

  folder = state.folder / "run"
  folder.mkdir(exist_ok=True)
  harmed = _some(["config.json", "manifest.json"], rng)
  for name in ("config.json", "manifest.json"):
    data = (state.world.run / name).read_bytes()
    new = mutants.json_text(data, rng) if name == harmed else data
    (folder / name).write_bytes(new)
  run = workdir.open_run(folder)
  for side in ("source", "target"):
    file = folder / run.manifest["vocabulary"][side]["file"]
    inside = file.resolve().is_relative_to(folder.resolve())
    _must(inside, f"leaves: {file}")


def config(state: MutationCases, rng: Rng) -> None:
  from jaxsyn.plan import resolve

  plain = _plain_config(state.world.folder)
  read = read_config(mutants.tree(plain, rng))
  resolve(read, state.manifest)
  for name, value in _numbers(as_dict(read)):
    _must(math.isfinite(value), f"config.{name}={value}")


@functools.cache
def _plain_config(folder: pathlib.Path) -> dict[str, Any]:
  return as_dict(read_config(World(folder).config()))


def _numbers(content: Any, name: str = "") -> list[tuple[str, float]]:
  parts: Iterable[tuple[Any, Any]]
  if isinstance(content, dict):
    parts = content.items()
  elif isinstance(content, (list, tuple)):
    parts = enumerate(content)
  else:
    number = isinstance(content, (int, float))
    return [(name, float(content))] if number else []
  return [
    found for key, value in parts for found in _numbers(value, f"{name}.{key}")
  ]


# Shares of all mutations: what is quick to read is tried most.
SHARES = {
  sentence: 0.33,
  given: 0.04,
  payload: 0.35,
  frame: 0.10,
  text: 0.08,
  brackets: 0.05,
  download: 0.005,
  manifest: 0.015,
  run_page: 0.01,
  config: 0.005,
}

SUITES = {
  f"mutate.{case.__name__}": Suite(_open, case, chunk=200) for case in SHARES
}


def counts(total: int) -> dict[str, int]:
  """How many of each kind, together at least `total`."""
  return {
    f"mutate.{case.__name__}": math.ceil(total * share)
    for case, share in SHARES.items()
  }
