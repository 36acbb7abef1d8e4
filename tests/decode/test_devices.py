"""Several devices find the same translations as one."""

import dataclasses

import jax
import numpy as np
import pytest
from models_under_test import config_of
from tables_under_test import Tables, random_params

from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.decode.translator import Translator

pytestmark = pytest.mark.usefixtures("eight_devices")
SIZE = 300  # of the vocabulary of the prepared corpus


def source(words: int) -> dict[str, np.ndarray]:
  """Returns the example of a sentence; without words it is empty."""
  rng = np.random.default_rng(words)
  return {"source_id": np.append(rng.integers(4, SIZE, words), 3)}


LINES = [source(n) for n in (1, 24, 6, 0, 5, 9, 2, 7, 0, 4, 8, 3, 1, 5)]


@pytest.fixture
def make(prepared):
  """A function (number of devices, options) -> a translator over tables."""
  vocabulary = Vocabulary(prepared / "vocabulary.model")

  def translator(devices, *, beam, sentences):
    config = dataclasses.replace(
      config_of("transformer").decode,
      beam=beam,
      nbest=beam,
      sentences=sentences,
      max_length_factor=0.2,
      max_length_offset=4,
    )
    chosen = jax.devices()[:devices]
    return Translator(Tables(SIZE), vocabulary, config, devices=chosen)

  return translator


def work_of(translate, lines) -> list[int]:
  """Returns the number of sentences of each device with work."""
  counts = {}
  for job in translate._jobs(lines):
    counts[job.device] = counts.get(job.device, 0) + len(job.indices)
  return sorted(counts.values())


def test_devices_share_the_sentences(make):
  """There are more sentences than slots, and one of a length of its own."""
  one, four = (make(n, beam=2, sentences=2) for n in (1, 4))
  assert len(work_of(four, LINES)) == 4 and sum(work_of(four, LINES)) == 12
  params = random_params(SIZE, 3.0)
  for found, expected in zip(four(params, LINES), one(params, LINES)):
    assert [best.ids for best in found] == [best.ids for best in expected]
    np.testing.assert_allclose(
      [best.score for best in found],
      [best.score for best in expected],
      atol=1e-6,
    )


def test_fewer_lines_than_devices_and_other_parameters(make):
  """Programs are compiled only for devices that have work."""
  one, eight = (make(n, beam=2, sentences=1) for n in (1, 8))
  few = LINES[2:6]  # one of them is empty
  assert work_of(eight, few) == [1, 1, 1]
  for seed in (0, 1):
    params = random_params(SIZE, 3.0, seed)
    assert eight(params, few) == one(params, few)
  assert eight.compilations == 3 * 2
  assert len(work_of(eight, LINES)) == 8


def test_runs_the_programs_compiled_for_shapes(make):
  translate = make(2, beam=1, sentences=2)
  params = random_params(SIZE, 3.0)
  lines = [LINES[2]] * 4
  translate.compile(jax.eval_shape(lambda: params), lines)
  assert translate.compilations == 2 * 2
  translate(params, lines)
  assert translate.compilations == 2 * 2
