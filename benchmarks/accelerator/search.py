"""Sentences a second of a beam search, many of them together."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import Any

import jax

from benchmarks.accelerator.limits import BenchmarkLimits, Row
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store.rows import Example
from jaxsyn.decode.translator import Translator
from jaxsyn.plan import Plan
from jaxsyn.training.step import first_params


class _Ids(Vocabulary):
  """There is no text: translations stay ids."""

  def __init__(self) -> None:
    self.size = 0

  def decode(self, ids: Iterable[int]) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Searched:
  """A model with random parameters, and what it translates.

  It hardly ever says that a sentence ends, so a translation is as long as its
  source, which is its limit.
  """

  plan: Plan
  params: Any
  examples: list[Example]

  @classmethod
  def of(
    cls,
    limits: BenchmarkLimits,
    system: str,
    *,
    size: str,
    dtype: str,
    count: int,
  ) -> Searched:
    plan, text = limits.plan(system, size, dtype), limits.text()
    (batch,) = text.batches(plan, rows=1, count=1)
    params = jax.jit(lambda key: first_params(plan.recipe, batch, key))(
      jax.random.key(0)
    )
    made = text.examples()
    return cls(plan, params, [made[i % len(made)] for i in range(count)])

  def translator(self, together: int) -> Translator:
    decode = dataclasses.replace(
      self.plan.config.decode,
      sentences=together,
      max_length_factor=1.0,
      max_length_offset=0,
    )
    model, features = self.plan.recipe.model, self.plan.translation_features
    return Translator(model, _Ids(), decode, features=sorted(features))


def search(
  limits: BenchmarkLimits, system: str, size: str, dtype: str
) -> Iterator[Row]:
  """Beam 5, by how many sentences are searched together."""
  count = 2 * max(limits.together)
  searched = Searched.of(limits, system, size=size, dtype=dtype, count=count)
  for together in limits.together:
    translate = searched.translator(together)
    seconds = []
    for _ in range(2):
      began = time.perf_counter()
      best = [
        nbest[0] for nbest in translate(searched.params, searched.examples)
      ]
      seconds.append(time.perf_counter() - began)
    tokens = sum(len(one.ids) + 1 for one in best)
    yield {
      "system": system,
      "size": size,
      "dtype": dtype,
      "beam": searched.plan.config.decode.beam,
      "sentences together": together,
      "sentences/s": count / seconds[1],
      "tokens/s": tokens / seconds[1],
      "tokens a sentence": tokens / count,
      "compiling s": seconds[0] - seconds[1],
      "programs": translate.compilations,
    }
