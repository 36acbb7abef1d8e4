"""Random changes of what users, parsers and other programs write.

Most corrupt files are rejected for their checksum or syntax. These cases keep the
syntax and change the content: CoNLL-U rows, JSON values, features of a record. Each
is read by the code that reads it in use, which must raise InputError or return values
that keep the promises of their types: indices within bounds, trees without cycles,
paths inside of their directory.
"""

from __future__ import annotations

import gzip
import math
import struct
from typing import Any

import mutants
import numpy as np
import pytest
from corruptions import corrupted

from jaxsyn.config import as_dict, read_config
from jaxsyn.data import schema
from jaxsyn.data.schema import UTF8
from jaxsyn.data.sentence import conllu, tree
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.linearise import CLOSE
from jaxsyn.data.sentence.text import lines_of
from jaxsyn.data.store import (
  example_check,
  fetch,
  manifests,
  tfrecord,
)
from jaxsyn.data.store.records import decode
from jaxsyn.data.store.rows import InvalidExampleError
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.preprocess import penn
from jaxsyn.session import workdir


def choose(items, rng) -> Any:
  return items[int(rng.integers(len(items)))]


@pytest.fixture(scope="module")
def sentences(prepared):
  """Pairs of a line of the training split and its CoNLL-U."""
  trees = prepared / "conllu" / "train.source.conllu.gz"
  text = prepared / "text" / "train.source.gz"
  blocks = gzip.decompress(trees.read_bytes()).decode().strip().split("\n\n")
  lines = gzip.decompress(text.read_bytes()).decode().split("\n")
  return list(zip(lines, blocks))


@pytest.fixture(scope="module")
def shard(prepared):
  (path,) = prepared.glob("quickstart/*/*-train.tfrecord*")
  return path


@pytest.fixture(scope="module")
def payloads(shard):
  return list(tfrecord.scan(shard))


def check_each(case, count=150):
  """Calls case(rng) for several seeds; some cases must be rejected."""
  rejected = 0
  for seed in range(count):
    try:
      case(np.random.default_rng(seed))
    except InputError:
      rejected += 1
  assert rejected > 0


def check_parse(parse, line):
  """Asserts that a parse covers its line with a forest."""
  words = len(parse.head_W)
  assert parse.text == line
  assert all(0 <= head < words for head in parse.head_W)
  spans = list(zip(parse.start_W, parse.end_W))
  assert all(0 <= start <= end <= len(line) for start, end in spans)
  assert visible("".join(line[start:end] for start, end in spans)) == visible(
    line
  )
  for word in range(words):  # each word reaches a root
    for _ in range(words):
      word = parse.head_W[word]
    assert parse.head_W[word] == word
  distances = tree.tree_distance(np.array(parse.head_W, np.int32))
  assert distances.shape == (words, words)


def test_conllu_file_of_several_lines(sentences, tmp_path):
  def case(rng):
    first = int(rng.integers(len(sentences) - 4))
    lines, blocks = map(list, zip(*sentences[first : first + 4]))
    index, change = int(rng.integers(4)), int(rng.integers(4))
    if change == 0:
      del blocks[index]
    elif change == 1:
      blocks.insert(index, choose(blocks, rng))
    else:
      blocks[index] = mutants.conllu(blocks[index], rng)
    data = "".join(f"{block}\n\n" for block in blocks).encode()
    if change == 3:
      data = corrupted(data, rng)
    is_compressed = rng.random() < 0.2
    path = tmp_path / ("trees.conllu.gz" if is_compressed else "trees.conllu")
    path.write_bytes(gzip.compress(data, 1) if is_compressed else data)
    parses = list(conllu.match(conllu.read(path), lines, "lines"))
    for parse, line in zip(parses, lines, strict=True):
      check_parse(parse, line)

  check_each(case)


def test_frames_of_records(shard, payloads, tmp_path):
  known = payloads[:3]
  data = shard.read_bytes()[: sum(len(payload) + 16 for payload in known)]
  path = tmp_path / "records"

  def case(rng):
    if rng.random() < 0.2:  # a wrong length with a correct checksum
      length = struct.pack("<Q", int(rng.integers(2**63, dtype=np.uint64)) >> 8)
      crc = struct.pack("<I", tfrecord.masked_crc(length))
      path.write_bytes(length + crc + data[tfrecord.HEADER :])
    else:
      path.write_bytes(corrupted(data, rng))
    assert set(tfrecord.scan(path)) <= set(known)

  check_each(case)


def test_features_of_records(prepared, payloads):
  manifest = manifests.read(prepared)
  stored = tuple(schema.features(manifest))
  sizes = {side: v["size"] for side, v in manifest["vocabulary"].items()}

  def case(rng):
    payload = mutants.payload(choose(payloads, rng), rng)
    begin, end = np.array([0]), np.array([len(payload)])
    wanted = (*stored, *UTF8)
    try:
      rows = decode(payload, begin, end, stored=stored, wanted=wanted)
      example_check.check(rows, manifest)
    except InvalidExampleError as error:
      raise InputError(error.why) from None
    (example,) = rows.examples()
    for side in ("source", "target"):
      check_side(example, side, sizes, len(manifest["relations"][side]))

  check_each(case)


def check_side(example, side, sizes, labels):
  """Asserts that the features of one side fit each other."""
  names = ("id", "word", "head", "relation", "parent_mid", "tree_distance")
  id_S, word_S, head_W, relation_W, mid_S, distance_WW = (
    example[f"{side}_{name}"] for name in names
  )
  assert len(id_S) > 0 and id_S[-1] == 3
  assert len(word_S) == len(mid_S) == len(id_S)
  assert len(relation_W) == len(head_W)
  assert distance_WW.size == len(head_W) ** 2
  bounds = (
    (id_S, 0, sizes[side]),
    (word_S, -1, max(len(head_W), 1)),
    (head_W, 0, len(head_W)),
    (relation_W, 0, labels + 1),
    (mid_S, 0, len(id_S)),
  )
  for values, low, end in bounds:
    assert ((values >= low) & (values < end)).all()


def expected_lines(data):
  """Returns the lines of bytes: LF or CRLF ends them, other signs do not."""
  text = data.decode("utf-8", "replace").removeprefix("\ufeff")
  lines = [line.removesuffix("\r") for line in text.split("\n")]
  return lines if lines[-1] else lines[:-1]


def test_text_files(sentences, tmp_path):
  lines = [line for line, _ in sentences[:20]]
  lines[3] = "日本語の文 \u2028 und Grüße\r"
  path, packed = tmp_path / "lines", tmp_path / "lines.gz"

  def case(rng):
    data = corrupted("\n".join([*lines, ""]).encode(), rng)
    path.write_bytes(data)
    compressed = gzip.compress(data, 1)
    corrupt = corrupted(compressed, rng)
    packed.write_bytes(corrupt)
    assert list(lines_of(path)) == expected_lines(data)
    copies = {compressed: data, compressed * 2: data * 2, b"": b""}
    assert list(lines_of(packed)) == expected_lines(copies.get(corrupt, data))

  check_each(case)


def test_constituency_trees():
  line = b"(ROOT (S (NP (DT The) (JJ small) (NN dog)) (VP (VBZ sees)) (. .)))"

  def case(rng):
    text = corrupted(line, rng).decode(errors="replace")
    parsed = penn.parse(text, "file:1")
    depth = 0
    for sign in parsed.signs if parsed is not None else ():
      if sign == CLOSE and not isinstance(sign, str):
        depth -= 1
      elif isinstance(sign, str):
        depth += 1
      assert depth >= 0
    assert depth == 0

  check_each(case)


def test_downloads_and_their_records(payloads, tmp_path, capsys):
  path, record = tmp_path / "corpus.txt", tmp_path / "corpus.txt.sha256"
  unreachable = fetch.Download("http://127.0.0.1:9/corpus.txt")
  data = b"".join(payloads[:2])

  def case(rng):
    path.write_bytes(data)
    record.unlink(missing_ok=True)
    expected = fetch.get(path, unreachable)
    changed = choose([path, record], rng)
    changed.write_bytes(corrupted(changed.read_bytes(), rng))
    assert fetch.get(path, unreachable) == expected
    assert path.read_bytes() == data

  check_each(case, 40)


def test_config_and_manifest_of_a_run(runs, tmp_path):
  run = runs["pascal"]

  def case(rng):
    changed = choose(["config.json", "manifest.json"], rng)
    for name in ("config.json", "manifest.json"):
      data = (run / name).read_bytes()
      if name == changed:
        data = mutants.json_text(data, rng)
      (tmp_path / name).write_bytes(data)
    opened = workdir.open_run(tmp_path)
    for name in manifests.model_hashes(opened.manifest):
      assert (tmp_path / name).resolve().is_relative_to(tmp_path.resolve())

  check_each(case, 50)


def test_configs(tiny, prepared):
  config = as_dict(read_config(tiny()))
  manifest = manifests.read(prepared)

  def case(rng):
    changed = read_config(mutants.tree(config, rng))
    resolve(changed, manifest)
    assert all(map(math.isfinite, numbers(as_dict(changed))))

  check_each(case)


def numbers(content) -> list[float]:
  """Returns all numbers in nested dicts and lists."""
  if isinstance(content, dict):
    content = list(content.values())
  if isinstance(content, (list, tuple)):
    return [number for value in content for number in numbers(value)]
  return [content] if isinstance(content, (int, float)) else []
