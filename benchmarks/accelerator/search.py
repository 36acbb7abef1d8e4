"""Measures the speed of beam search with randomly initialized models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import jax

from benchmarks.accelerator.limits import BenchmarkLimits, Row
from benchmarks.figures import Timer
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store.rows import Example
from jaxsyn.decode.examples import Batcher
from jaxsyn.decode.translator import Translator
from jaxsyn.plan import Plan
from jaxsyn.training.step import first_params


class _NoText(Vocabulary):
  """Vocabulary without subwords, for translations that consist of ids only."""

  def __init__(self) -> None:
    self.size = 0

  def decode(self, ids: Iterable[int]) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class RandomModel:
  """Model with random parameters, and random examples for it to translate.

  Such a model rarely predicts EOS, so that a translation is as long as its
  source, which is the limit.
  """

  plan: Plan
  params: Any
  examples: list[Example]

  @classmethod
  def create(
    cls,
    limits: BenchmarkLimits,
    system: str,
    *,
    size: str,
    dtype: str,
    count: int,
  ) -> RandomModel:
    plan, text = limits.plan(system, size, dtype), limits.text()
    (batch,) = text.batches(plan.features, rows=1, count=1)
    params = jax.jit(lambda key: first_params(plan.recipe, batch, key))(
      jax.random.key(0)
    )
    pairs = text.examples()
    return cls(plan, params, [pairs[i % len(pairs)] for i in range(count)])

  def translator(self, together: int) -> Translator:
    """Returns a translator that decodes batches of `together` sentences."""
    decode = dataclasses.replace(
      self.plan.config.decode,
      sentences=together,
      max_length_factor=1.0,
      max_length_offset=0,
    )
    model, features = self.plan.recipe.model, self.plan.translation_features
    return Translator(model, _NoText(), decode, Batcher(sorted(features)))


def search(
  limits: BenchmarkLimits, system: str, size: str, dtype: str
) -> Iterator[Row]:
  """Measures the speed of beam search for several batch sizes."""
  count = 2 * max(limits.together)
  model = RandomModel.create(
    limits, system, size=size, dtype=dtype, count=count
  )
  for together in limits.together:
    translate = model.translator(together)
    with Timer() as first:
      translate(model.params, model.examples)
    with Timer() as second:
      nbests = translate(model.params, model.examples)
    tokens = sum(len(nbest[0].ids) + 1 for nbest in nbests)
    yield {
      "system": system,
      "size": size,
      "dtype": dtype,
      "beam": model.plan.config.decode.beam,
      "sentences together": together,
      "sentences/s": count / second.wall,
      "tokens/s": tokens / second.wall,
      "tokens a sentence": tokens / count,
      "compiling s": first.wall - second.wall,
      "programs": translate.compilations,
    }
