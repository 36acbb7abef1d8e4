"""Random changes of what users, parsers and other programs write.

Most corrupt files are rejected for their checksum or syntax. These cases keep the
syntax and change the content: CoNLL-U rows and JSON values, with a correct checksum.
Each is read by the code that reads it in use, which must raise InputError or return
values that keep the promises of their types: trees without cycles, finite numbers,
paths inside of their directory. Records of examples: tests/data/store/test_records.py;
manifests: tests/data/store/test_manifests.py.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest
from corruptions import corrupted

from jaxsyn import export
from jaxsyn.config import as_dict, read_config
from jaxsyn.data.sentence import conllu, tree
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.linearise import CLOSE
from jaxsyn.data.sentence.text import lines_of
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.preprocess import penn
from jaxsyn.scoring.selection import SELECTIONS
from jaxsyn.session import parameters, workdir
from jaxsyn.storage import checksums
from jaxsyn.training.checkpoint_writer import CheckpointWriter, Progress

COUNT = int(os.environ.get("JAXSYN_MUTANTS", "12"))  # mutants a file


@pytest.fixture(scope="module")
def sentences(prepared):
  """Pairs of a line of the training split and its CoNLL-U."""
  trees = prepared / "conllu" / "train.source.conllu.gz"
  text = prepared / "text" / "train.source.gz"
  blocks = gzip.decompress(trees.read_bytes()).decode().strip().split("\n\n")
  lines = gzip.decompress(text.read_bytes()).decode().split("\n")
  return list(zip(lines, blocks))


def check_each(case, count=150, least=1):
  """Calls case(rng) for several seeds; some cases must be rejected."""
  rejected = 0
  for seed in range(count):
    try:
      case(np.random.default_rng(seed))
    except InputError as error:
      str(error).encode()
      rejected += 1
  assert rejected >= least


def check_parse(parse, line):
  """Asserts that a parse covers its line with a forest."""
  words = len(parse.head_W)
  assert parse.text == line
  assert all(0 <= head < words for head in parse.head_W)
  spans = list(zip(parse.start_W, parse.end_W))
  assert all(0 <= start <= end <= len(line) for start, end in spans)
  joined = "".join(line[start:end] for start, end in spans)
  assert visible(joined) == visible(line)
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
      blocks.insert(index, blocks[int(rng.integers(4))])
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
      if isinstance(sign, str):
        depth += 1
      elif sign == CLOSE:
        depth -= 1
      assert depth >= 0
    assert depth == 0

  check_each(case)


def numbers(content) -> list[float]:
  """Returns all numbers in nested dicts and lists."""
  if isinstance(content, dict):
    content = list(content.values())
  if isinstance(content, (list, tuple)):
    return [number for value in content for number in numbers(value)]
  return [content] if isinstance(content, (int, float)) else []


def test_configs(tiny, prepared):
  config = as_dict(read_config(tiny()))
  manifest = manifests.read(prepared)

  def case(rng):
    changed = read_config(mutants.tree(config, rng))
    resolve(changed, manifest)
    assert all(map(math.isfinite, numbers(as_dict(changed))))

  check_each(case)


@pytest.fixture(scope="module")
def run(runs, tmp_path_factory):
  folder = tmp_path_factory.mktemp("crafted") / "run"
  return shutil.copytree(runs["pascal"], folder)


def open_run(folder) -> Any:
  opened = workdir.open_run(folder)
  for name in manifests.model_hashes(opened.manifest):
    assert (folder / name).resolve().is_relative_to(folder.resolve())
  return opened


def read_checkpoint(name):
  return lambda folder: parameters.read(open_run(folder), name)


@pytest.mark.parametrize(
  ("name", "read", "count"),
  [
    ("config.json", open_run, 25),
    ("manifest.json", open_run, 25),
    ("best/20/metadata/metadata.json", read_checkpoint("best"), COUNT),
    ("checkpoints/20/metadata/metadata.json", read_checkpoint("last"), COUNT),
    ("model.json", read_checkpoint(""), COUNT),
  ],
)
def test_crafted_metadata_of_runs_and_exports(run, tmp_path, name, read, count):
  """Crafted metadata is read, or rejected by a message that names its folder."""
  folder = run
  if name == "model.json":
    pytest.importorskip("safetensors", reason="extra hub")
    folder = tmp_path / "model"
    export.run(run, folder)
  path = folder / name
  named = folder / name.rpartition("/metadata/")[0]
  intact = path.read_bytes()

  def case(rng):
    path.write_bytes(mutants.json_text(intact, rng))
    try:
      read(folder)
    except InputError as error:
      assert str(named) in str(error)
      raise

  try:
    check_each(case, count, least=count // 4)
  finally:  # other cases read the same run
    path.write_bytes(intact)
  read(folder)


@pytest.mark.parametrize(
  "metric", ["", "accuracy", "BLEU", "bleu ", "\n", None, 3]
)
@pytest.mark.parametrize("exported", [False, True])
def test_rejects_a_score_by_an_unknown_metric(run, tmp_path, exported, metric):
  folder, name = tmp_path / "copy", "best/20/metadata/metadata.json"
  if exported:
    pytest.importorskip("safetensors", reason="extra hub")
    export.run(run, folder)
    name = "model.json"
  else:
    shutil.copytree(run, folder)
  path = folder / name
  record = checksums.verify_checksum(json.loads(path.read_bytes()))
  score = record["score"] if exported else record["content"]
  assert score["selection"] in SELECTIONS
  score["selection"] = metric
  path.write_text(json.dumps(checksums.add_checksum(record)))
  with pytest.raises(InputError) as caught:
    parameters.read(open_run(folder), "")
  message = str(caught.value)
  assert str(path).split("/metadata/")[0] in message and "selection" in message


def state(step):
  return {"params": {"w": jnp.full((2, 3), float(step))}}


def test_a_run_resumes_from_another_checkpoint_or_is_rejected(tmp_path):
  """Crafted metadata is set aside where training resumes."""
  checkpoints = CheckpointWriter(tmp_path / "run")
  for step in (1, 2):
    checkpoints.save(step, state(step), Progress(batch=step, best_step=2))
  checkpoints.close()
  steps = []
  for seed in range(2 * COUNT):
    folder = shutil.copytree(tmp_path / "run", tmp_path / str(seed))
    path = folder / "checkpoints" / "2" / "metadata" / "metadata.json"
    rng = np.random.default_rng(seed)
    path.write_bytes(mutants.json_text(path.read_bytes(), rng))
    checkpoints = CheckpointWriter(folder)
    try:
      abstract = jax.eval_shape(lambda: state(0))
      step, result, progress = checkpoints.restore(abstract)
      assert float(result["params"]["w"][0, 0]) == step
      assert type(progress.batch) is int
      steps.append(step)
    except InputError as error:
      assert str(folder) in str(error)
    finally:
      checkpoints.close()
  assert set(steps) == {1, 2}
