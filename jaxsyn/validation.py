"""Scores of a split during training: loss, perplexity, and what selects."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxsyn.config import Config, with_defaults
from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.loader.loader import open_loader
from jaxsyn.data.loader.transforms import iterate_translations
from jaxsyn.data.store.dataset import Split
from jaxsyn.decode.beam import Beam
from jaxsyn.decode.examples import Batcher
from jaxsyn.decode.translator import Translator
from jaxsyn.errors import InputError
from jaxsyn.plan import Plan
from jaxsyn.progress import Bar
from jaxsyn.scoring.metrics import LIKELIHOOD
from jaxsyn.scoring.selection import Selector
from jaxsyn.training import hosts
from jaxsyn.training.log import Pictures, Sample
from jaxsyn.training.mesh import Layout
from jaxsyn.training.objective import report
from jaxsyn.training.start import ValidationScores
from jaxsyn.training.step import evaluate_step

LONGEST = 1024  # subwords of a side

AttentionLogger = Callable[[Any], Pictures]


class Validator:
  """Evaluates parameters on one split; called by the training loop.

  Every sentence is scored, in few shapes of its own; sums and counts are
  added up over all of them, so results do not depend on batches or devices.
  """

  def __init__(
    self,
    plan: Plan,
    layout: Layout,
    split: Split,
    *,
    batch_transform: BatchTransform | None = None,
    split_transform: BatchTransform | None = None,
    attention_logger: AttentionLogger | None = None,
  ):
    """Opens the batches of the split.

    Args:
      plan: of the run.
      layout: where evaluation steps run.
      split: Opened split.
      batch_transform: on every host batch that losses are measured of: a
        caller's own function, and teachers.
      split_transform: the caller's alone; translating reads no more.
      attention_logger: draws what parameters, whole on one device, look at;
        given to all processes or to none, called by the first.
    """
    config: Config = with_defaults(plan.config)
    dataset, longest = split.dataset, _longest(split)
    self._layout = layout
    self._loader = open_loader(
      split,
      plan.features,
      data=config.data,
      batch=dataclasses.replace(
        config.batch,
        tokens=max(config.batch.tokens, longest * layout.rows * 8),
        shapes=0,
        row_multiple=layout.rows,  # results do not depend on the batches
        length_multiple=1,
      ),
      seed=config.seed,
      training=False,
      shard=layout.host_shard,
      batch_transform=batch_transform,
    )
    self._losses = plan.recipe.losses
    self._evaluate = functools.partial(evaluate_step, recipe=plan.recipe)
    self._look = attention_logger
    self._translates = config.train.selection != LIKELIHOOD
    if not self._translates:
      return
    sentence_count = config.train.validation_sentences or len(split)
    references = dataset.text(split.name, "target")[:sentence_count]
    self._metric = Selector(config.train, references)
    sources = dataset.text(split.name, "source")
    shown = min(sentence_count, config.train.writers.samples)
    self._shown = list(zip(sources[:shown], references))
    # Each host translates its part of them, in their order.
    me, all_of_us = jax.process_index(), jax.process_count()
    begin, end = (sentence_count * i // all_of_us for i in (me, me + 1))
    examples = iterate_translations(split, config.data, config.seed)
    self._examples = list(itertools.islice(examples, begin, end))
    decode = dataclasses.replace(
      config.decode,
      search=Beam(),
      beam=config.train.validation_beam,
      nbest=1,
    )
    self._translator = Translator(
      plan.recipe.model,
      dataset.vocabulary("target"),
      decode,
      Batcher(
        [f for f in self._loader.features if f.startswith("source")],
        batch_transform=split_transform,
      ),
      devices=jax.local_devices(),
    )

  def compile(self, params: Any) -> None:
    """Makes all programs of a call; see `jaxsyn.training.start.Validation`."""
    for batch in self._loader.empty():
      self._program(params, self._layout.place_rows(batch))
    if self._translates:
      # Without their shardings: each device translates for itself.
      shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params
      )
      self._translator.compile(shapes, self._examples)

  def _program(self, params: Any, placed: Any) -> Any:
    return self._layout.compile("evaluate", self._evaluate, params, placed)

  def __call__(self, params: Any) -> ValidationScores:
    """The scores, and the rank of these parameters.

    Values are "loss" and its terms; "log_likelihood", the mean log probability of a
    target subword, and "perplexity", of the same; what losses measure; the
    metric that selects, by its name; "tokenizer", its.
    """
    began = time.monotonic()
    sums: dict[tuple[str, str], Any] = collections.defaultdict(
      lambda: np.zeros(2)
    )
    bar = Bar("validating", unit="batch", silent=bool(jax.process_index()))
    for batch in self._loader.in_order():
      placed = self._layout.place_rows(batch)
      measured = jax.device_get(self._program(params, placed)(params, placed))
      bar.advance()
      pairs = {("log_p", ""): measured["log_p"]}
      for kind in ("terms", "shares"):
        pairs |= {(kind, name): pair for name, pair in measured[kind].items()}
      for name, pair in pairs.items():
        sums[name] += np.array(pair, np.float64)
    mean = {name: float(s / max(n, 1)) for name, (s, n) in sums.items()}
    terms, shares = (
      {name: value for (kind, name), value in mean.items() if kind == wanted}
      for wanted in ("terms", "shares")
    )
    values = report(terms, self._losses)
    values["log_likelihood"] = mean["log_p", ""]
    rank = [values["log_likelihood"]]
    values["perplexity"] = math.exp(min(-mean["log_p", ""], 100.0))
    bar.close()
    values |= shares
    samples: list[Sample] = []
    if self._translates or self._look:
      params = self._layout.replicate(params)
    if self._translates:
      bar = Bar(
        "translating",
        total=len(self._examples),
        unit="sentence",
        note=self._translator.note,
        silent=bool(jax.process_index()),
      )
      with contextlib.closing(bar):
        nbest = self._translator(
          params, self._examples, on_progress=bar.advance
        )
      self._translator.forget_params()  # training needs the memory
      best_texts = [best[0].text if best else "" for best in nbest]
      texts = list(
        itertools.chain.from_iterable(hosts.all_gather_json(best_texts))
      )
      samples = [Sample(*pair, text) for pair, text in zip(self._shown, texts)]
      selected = self._metric(texts)
      values |= selected.values
      rank = [selected.compared, *rank]
    values["seconds"] = time.monotonic() - began
    is_first = jax.process_index() == 0
    pictures: Pictures = ()
    if self._look and is_first:
      pictures = self._look(_on_one_device(params))
    return ValidationScores(values, rank, samples, pictures)


def _on_one_device(params: Any) -> Any:
  """Arrays that are whole on each device, on this host's first."""
  if jax.device_count() == 1:
    return params
  return jax.tree.map(lambda x: x.addressable_data(0), params)


def _longest(split: Split) -> int:
  """Subwords of the longest side of a split.

  Raises:
    InputError: one of thousands, which would need more memory than all others.
  """
  lengths = split.lengths
  size = np.maximum(lengths.source, lengths.target)
  longest = int(size.max(initial=0))
  if longest > LONGEST:
    line = split[int(size.argmax())]["line"]
    raise InputError(
      f"split {split.name}, line {line}: {longest} subwords on one side, more "
      f"than {LONGEST}. It is no sentence; take it out of both raw files and "
      "prepare the data again."
    )
  return longest
