"""A run beside its export to StableHLO: are the translations the same?

  python -m benchmarks.stablehlo_beside --workdir runs/pascal --input test.en.gz

The run is exported (jaxsyn.export --format stablehlo), and its text translated
by the run, then by the program in a process of its own that cannot import jaxsyn:
it has JAX, NumPy, the program, the parameters and the arrays of the sentences with
their trees. Widths of sentences double, so that few sizes are compiled. One line a
figure: name=value unit. `same` are to the subword, `apart` is the largest
difference of the best scores.
"""

from __future__ import annotations

import collections
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags, logging

from benchmarks.figures import Figures, show
from jaxsyn import cli, export
from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.loader.columns import pad, words_of
from jaxsyn.data.schema import EOS
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.decode.translator import longest_output
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.shapes import split
from jaxsyn.storage import files
from jaxsyn.training.mesh import set_up_jax

ROWS = 64  # sentences of a batch
SHORTEST = 16  # subwords

# What the other process runs: FOLDER, whose batches are N.npz.
ALONE = """
import sys
sys.modules["jaxsyn"] = None
import json, pathlib
import numpy as np
from jax import export

folder = pathlib.Path(sys.argv[1])
program = export.deserialize(bytearray((folder / "out/program.stablehlo").read_bytes()))
data = (folder / "out/model.safetensors").read_bytes()
begin = 8 + int.from_bytes(data[:8], "little")
params = {}
for name, entry in json.loads(data[8:begin]).items():
  first, last = entry["data_offsets"]
  read = np.frombuffer(data[begin + first : begin + last], np.float32)
  params[name] = read.reshape(entry["shape"])
for path in sorted(folder.glob("*.npz")):
  tokens, scores = program.call(params, dict(np.load(path)))
  np.savez(path.with_suffix(".done"), tokens=tokens, scores=scores)
"""


def run(workdir: str, lines: Sequence[str]) -> Figures:
  """What the module says.

  Raises:
    InputError: the run cannot be exported so.
  """
  session = Session(workdir)
  examples: list[Mapping[str, np.ndarray]] = []
  for example in session.begin_examples(lines)():
    assert isinstance(example, Mapping)  # of one run
    examples.append(example)
  wanted = [nbest[0] for nbest in session.search(examples)]
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    export.run(workdir, folder / "out", "stablehlo")
    batches = _write(session, examples, folder)
    subprocess.run([sys.executable, "-c", ALONE, name], check=True)
    found: dict[int, tuple[list[int], float]] = {}
    for number, own in enumerate(batches):
      with np.load(folder / f"{number:04}.done.npz") as page:
        tokens, scores = page["tokens"][:, 0], page["scores"][:, 0]
      found |= dict(zip(own, zip(tokens.tolist(), scores.tolist())))
  same = sum(
    tuple(found[i][0][: len(one.ids) + 1]) == (*one.ids, EOS)
    for i, one in enumerate(wanted)
  )
  apart = max(abs(found[i][1] - one.score) for i, one in enumerate(wanted))
  return {
    "sentences": (len(lines), ""),
    "parsed": (
      sum(bool(e.get("source_parsed")) for e in examples),
      "sentences",
    ),
    "same": (same, "translations"),
    "apart": (apart, "of a score at most"),
  }


def _write(
  session: Session,
  examples: Sequence[Mapping[str, np.ndarray]],
  folder: pathlib.Path,
) -> list[list[int]]:
  """N.npz, the program's inputs; the numbers of the sentences in each."""
  page = files.read_json(folder / "out" / "jaxsyn.json")
  features = [split(name)[0] for name in page["inputs"]]
  features = [name for name in features if name.startswith("source")]
  alike: dict[int, list[int]] = collections.defaultdict(list)
  for number, example in enumerate(examples):
    width = max(len(example["source_id"]), words_of(example, features))
    alike[doubled(width, SHORTEST)].append(number)
  batches: list[list[int]] = []
  for width, numbers in alike.items():
    for start in range(0, len(numbers), ROWS):
      own = numbers[start : start + ROWS]
      inputs: dict[str, Any] = dict(
        pad(
          [examples[i] for i in own],
          features,
          subwords=width,
          words=width,
          rows=ROWS,
        )
      )
      longest_B = np.ones(ROWS, np.int32)
      longest_B[: len(own)] = [
        longest_output(
          session.plan.config.decode, len(examples[i]["source_id"])
        )
        for i in own
      ]
      name = folder / f"{len(batches):04}.npz"
      np.savez(name, **inputs, longest_B=longest_B)
      batches.append(own)
  return batches


def _main(values: flags.FlagValues) -> None:
  if not values.workdir or not values.input:
    raise InputError("--workdir and --input are needed: a run and a text.")
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  show(run(values.workdir, read_lines(values.input)))


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  flags.DEFINE_string("input", None, "Raw text, plain or .gz.")
  cli.main(_main)
