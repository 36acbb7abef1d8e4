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
  return {
    name.rpartition("_")[0]: array
    for name, array in sentence(words, 3, seed).items()
  }


# More sentences than slots.
LINES = [
  source(words, seed)
  for seed, words in enumerate([1, 6, 0, 5, 9, 2, 7, 0, 4, 8, 3, 1, 5])
]


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


def test_four_devices_find_the_same_as_one(make):
  plan = plan_of("pascal")
  params = parameters(plan, batch_of([sentence(5, 6, 1)]))
  features = ["source_word", "source_parsed", *plan.translation_features]
  options = {"beam": 2, "sentences": 2, "max_length_factor": 0.2}
  one = make(plan.recipe.model, features, **options)
  four = make(plan.recipe.model, features, jax.devices()[:4], **options)
  assert sorted(work_of(four, LINES).values()) == [2, 3, 3, 3]
  result = four(params, LINES)
  one._programs = four._programs  # those of the first device are among them
  for a, b in zip(one(params, LINES), result, strict=True):
    assert [best.ids for best in a] == [best.ids for best in b]
    np.testing.assert_allclose(
      [best.score for best in a], [best.score for best in b], atol=1e-6
    )
  assert four.compilations == 4 * 2


def test_fewer_lines_than_devices_and_other_parameters(make):
  """Programs are compiled only for devices that have work."""
  one = make(Tables(SIZE), beam=2, sentences=1)
  eight = make(Tables(SIZE), devices=jax.devices(), beam=2, sentences=1)
  few = LINES[1:5]  # one of them is empty
  assert len(work_of(eight, few)) == 3
  for seed in (0, 1):
    params = random_params(SIZE, 3.0, seed)
    assert eight(params, few) == one(params, few)
  assert eight.compilations == 3 * 2
  assert len(work_of(eight, LINES)) == 8


def test_runs_the_programs_compiled_for_shapes(make):
  translate = make(Tables(SIZE), devices=jax.devices()[:2], beam=1, sentences=2)
  params = random_params(SIZE, 3.0)
  lines = [LINES[1]] * 4
  translate.compile(jax.eval_shape(lambda: params), lines)
  assert translate.compilations == 2 * 2
  translate(params, lines)
  assert translate.compilations == 2 * 2
