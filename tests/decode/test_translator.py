"""Translation of many sentences in few programs, on one or more devices."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
from models_under_test import config_of
from tables_under_test import Tables, random_params, search_by_loops

from jaxsyn.data.schema import EOS
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.examples import Batcher, Example
from jaxsyn.decode.translator import (
  EMPTY_TRANSLATION,
  Translator,
  max_output_length,
)

SIZE = 300  # of the vocabulary of the prepared corpus


@pytest.fixture
def make(prepared):
  """A function (beam, features, devices) -> a translator over tables."""
  vocabulary = Vocabulary(prepared / "vocabulary.model")

  def translator(beam, features=(), devices=0, **options):
    config = dataclasses.replace(
      config_of("transformer").decode,
      beam=beam,
      nbest=beam,
      **{"max_length_factor": 0.2, "max_length_offset": 1} | options,
    )
    chosen = jax.devices()[:devices]
    ensemble, batcher = Ensemble((Tables(SIZE),)), Batcher([features])
    return Translator(ensemble, vocabulary, config, batcher, devices=chosen)

  return translator


def params_of(*arguments):
  """Returns the parameters of an ensemble of one."""
  return [random_params(SIZE, *arguments)]


def source(subwords: int, words: int = 0) -> Example:
  """Returns an example with numbers of subwords and of words."""
  rng = np.random.default_rng(subwords)
  arrays = {
    "source_id": np.r_[rng.integers(4, SIZE, subwords - 1), EOS],
    "source_head": np.zeros(words, np.int32),
    "source_tree_distance": np.zeros(words * words, np.uint8),
  }
  return (arrays,)


def ids(nbests):
  return [[one.ids for one in nbest] for nbest in nbests]


def test_many_sentences_are_translated_like_single_ones(make):
  """There are 300 sentences of all lengths, more than slots."""
  translate, params = make(3), params_of(3.0)
  lengths = np.random.default_rng(1).integers(2, 60, 300)
  examples = [source(int(subwords)) for subwords in lengths]
  result = translate(params, examples)
  for index in range(0, 300, 9):
    source_ids = examples[index][0]["source_id"].tolist()
    limit = max_output_length(translate._config, len(source_ids))
    expected = search_by_loops(params[0], source_ids, limit, translate._config)
    assert ids(result)[index] == [one.tokens[:-1] for one in expected]
    np.testing.assert_allclose(
      [(one.score, one.log_p) for one in result[index]],
      [(one.score, one.log_p) for one in expected],
      atol=1e-4,
    )


def test_reports_finished_sentences_and_compilation(make):
  """Empty sentences count too; notes count programs before the first result."""
  translate, progress, notes = make(2), [], set()
  ended = threading.Event()

  def sample():
    while not ended.wait(0.005):
      notes.add((sum(progress), translate.note()))

  sampler = threading.Thread(target=sample)
  sampler.start()
  lengths = [1, 9, 1, *range(2, 30)]
  translate(
    params_of(3.0),
    [source(n) for n in lengths],
    on_progress=progress.append,
  )
  ended.set()
  sampler.join()
  assert progress == [2, *[1] * (len(lengths) - 2)]
  seen = {note for done, note in notes if done == 2 and note}
  possible = [f"compiling programs: {count} of 4" for count in range(4)]
  # Two threads compile: a count that lasts less than 5 ms may not be sampled.
  assert possible[0] in seen and len(seen) >= 2 and seen <= set(possible)
  assert translate.note() == ""


def test_outputs_without_an_end_are_limited_by_their_own_source(make):
  translate, params = make(2), params_of(-60.0)
  result = translate(params, [source(6), source(15), source(40)])
  # 0.2 · 6 + 1 = 2.2 -> 3; 0.2 · 15 + 1 = 4; 0.2 · 40 + 1 = 9, EOS included.
  for nbest, longest in zip(result, (3, 4, 9)):
    assert {len(one.ids) + 1 for one in nbest} == {longest}
  none = dataclasses.replace(
    translate._config, max_length_factor=0, max_length_offset=0
  )
  assert max_output_length(none, 5) == 1


def test_more_words_than_subwords_need_few_programs(make):
  translate = make(2, ("source_head", "source_tree_distance"))
  params, rng = params_of(2.0), np.random.default_rng(0)
  subwords = rng.integers(2, 33, 200)
  examples = [source(n, words=int(n * rng.uniform(0, 2))) for n in subwords]
  assert max(len(one["source_head"]) for (one,) in examples) > 50
  result = translate(params, examples)
  # 64, 32 and 16 words: programs to encode, to search, to move and to search in
  # fewer slots.
  assert translate.compilations <= 3 * 4
  for i in range(0, 200, 50):
    assert ids(translate(params, examples[i : i + 1])) == ids(result[i : i + 1])


def test_sentences_of_many_words_are_searched_in_few_slots(make):
  """An example is a line of unknown characters, one unknown subword but many words."""
  translate = make(1, ("source_tree_distance",))
  result = translate(params_of(2.0), [source(3, 1000)] * 40)
  assert ids(result) == ids(result[:1]) * 40
  # At most as many at a time as fit into the memory of 64 usual ones.
  (size,) = {
    key[1] for key in translate._programs._programs if key[0] == "search"
  }
  assert (size.slots, size.words) == (8, 1024)


@pytest.mark.parametrize("lengths", [[9], [9, 20, 40]])
def test_counts_no_programs_after_an_interrupted_search(make, lengths):
  translate, params = make(2), params_of(3.0)
  examples = [source(n) for n in lengths]
  result = translate(params, examples, is_wanted=lambda index: False)
  assert result == [[EMPTY_TRANSLATION]] * len(lengths)
  assert translate.compilations == 0 and translate.note() == ""

  def broken(index):
    raise RuntimeError("broken")

  with pytest.raises(RuntimeError, match="broken"):
    translate(params, examples, is_wanted=broken)
  assert translate.note() == ""
  # Programs of the next search are counted again.
  assert ids(translate(params, examples)) and translate.compilations > 0
  assert translate.note() == ""


# These tests come last in the file, since the fixture lasts.
SEVERAL_DEVICES = pytest.mark.usefixtures("eight_devices")
LINES = [source(n) for n in (2, 25, 7, 1, 6, 10, 3, 8, 1, 5, 9, 4, 2, 6)]


def work_of(translate, lines) -> list[int]:
  """Returns the number of sentences of each device with work."""
  counts = {}
  for job in translate._jobs(lines):
    counts[job.device] = counts.get(job.device, 0) + len(job.indices)
  return sorted(counts.values())


@SEVERAL_DEVICES
def test_devices_share_the_sentences(make):
  """There are more sentences than slots, and one of a length of its own."""
  one, four = (
    make(2, devices=n, sentences=2, max_length_offset=4) for n in (1, 4)
  )
  assert len(work_of(four, LINES)) == 4 and sum(work_of(four, LINES)) == 12
  params = params_of(3.0)
  results = four(params, LINES), one(params, LINES)
  assert ids(results[0]) == ids(results[1])
  for found, expected in zip(*results):
    np.testing.assert_allclose(
      [best.score for best in found],
      [best.score for best in expected],
      atol=1e-6,
    )


@SEVERAL_DEVICES
def test_fewer_lines_than_devices_and_other_parameters(make):
  """Programs are compiled only for devices that have work."""
  one, eight = (
    make(2, devices=n, sentences=1, max_length_offset=4) for n in (1, 8)
  )
  few = LINES[2:6]  # one of them is empty
  assert work_of(eight, few) == [1, 1, 1]
  for seed in (0, 1):
    params = params_of(3.0, seed)
    assert eight(params, few) == one(params, few)
  assert eight.compilations == 3 * 2
  assert len(work_of(eight, LINES)) == 8


@SEVERAL_DEVICES
def test_runs_the_programs_compiled_for_shapes(make):
  translate = make(1, devices=2, sentences=2, max_length_offset=4)
  params = params_of(3.0)
  lines = [LINES[2]] * 4
  translate.compile(jax.eval_shape(lambda: params), lines)
  assert translate.compilations == 2 * 2
  translate(params, lines)
  assert translate.compilations == 2 * 2
