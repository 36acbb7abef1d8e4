"""Several devices find the same translations as one."""

import dataclasses

import jax
import numpy as np
import pytest
from models_under_test import batch_of, parameters, plan_of, sentence
from tables_under_test import Tables, random_params

from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.decode.examples import Batcher
from jaxsyn.decode.translator import Translator

pytestmark = pytest.mark.usefixtures("eight_devices")
SIZE = 300  # of the vocabulary of the prepared corpus


def source(words: int, seed: int) -> dict[str, np.ndarray]:
  """Returns the example of a sentence; without words it is empty."""
  if not words:
    return {"source_id": np.array([3])}
  arrays = {
    name.rpartition("_")[0]: array
    for name, array in sentence(words, 3, seed).items()
  }
  if seed == 4:  # without a parse: each word depends on itself
    expected_W = np.arange(words)
    apart_WW = np.where(expected_W[:, None] == expected_W, 0, 255).astype(
      np.uint8
    )
    arrays |= {"source_parsed": np.uint8(0), "source_head": expected_W}
    arrays |= {"source_tree_distance": apart_WW}
  return arrays


# More sentences than slots, and one of a length of its own.
LINES = [
  source(words, seed)
  for seed, words in enumerate([1, 24, 6, 0, 5, 9, 2, 7, 0, 4, 8, 3, 1, 5])
]
LONG = LINES[1]


@pytest.fixture
def make(prepared):
  """A function (model, features, options) -> a translator."""
  vocabulary = Vocabulary(prepared / "vocabulary.model")

  def translator(model, features=(), devices=(), **options):
    defaults = {"nbest": options["beam"], "max_length_offset": 4}
    config = dataclasses.replace(
      plan_of("transformer").config.decode, **defaults, **options
    )
    return Translator(
      model, vocabulary, config, Batcher(features), devices=devices
    )

  return translator


def work_of(translate, lines) -> dict[jax.Device, int]:
  """Returns the number of sentences that each device searches."""
  counts = {}
  for job in translate._jobs(lines):
    counts[job.device] = counts.get(job.device, 0) + len(job.indices)
  return counts


@pytest.mark.parametrize(("system", "beam"), [("pascal", 2), ("gru_syntax", 1)])
def test_four_devices_find_the_same_as_one(make, system, beam):
  plan = plan_of(system)
  params = parameters(plan, batch_of([sentence(5, 6, 1)]))
  features = ["source_word", "source_parsed", *plan.translation_features]
  one, four = (
    make(
      plan.recipe.model,
      features,
      devices,
      beam=beam,
      sentences=2,
      max_length_factor=0.2,
    )
    for devices in ((), jax.devices()[:4])
  )
  lines = [line for line in LINES if line is not LONG]  # to compile less
  assert sorted(work_of(four, lines).values()) == [2, 3, 3, 3]
  result = four(params, lines)
  one._programs = four._programs  # those of the first device are among them
  for a, b in zip(one(params, lines), result, strict=True):
    assert [best.ids for best in a] == [best.ids for best in b]
    np.testing.assert_allclose(
      [best.score for best in a], [best.score for best in b], atol=1e-6
    )
  assert four.compilations == 4 * 2


def test_fewer_lines_than_devices_and_other_parameters(make):
  """Programs are compiled only for devices that have work."""
  one = make(Tables(SIZE), beam=2, sentences=1)
  eight = make(Tables(SIZE), devices=jax.devices(), beam=2, sentences=1)
  few = [LINES[2], LINES[4], LINES[3], LINES[5]]
  assert len(work_of(eight, few)) == 3
  for seed in (0, 1):
    params = random_params(SIZE, 3.0, seed)
    assert eight(params, few) == one(params, few)
  assert eight.compilations == 3 * 2
  assert eight(params, LINES) == one(params, LINES)
  assert len(work_of(eight, LINES)) == 8


def test_runs_the_programs_compiled_for_shapes(make):
  translate = make(Tables(SIZE), devices=jax.devices()[:2], beam=1, sentences=2)
  params = random_params(SIZE, 3.0)
  lines = [LINES[2]] * 4
  translate.compile(jax.eval_shape(lambda: params), lines)
  assert translate.compilations == 2 * 2
  translate(params, lines)
  assert translate.compilations == 2 * 2
