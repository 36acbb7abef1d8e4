"""Validation during training: losses, perplexity and the selection metric."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxsyn.config import Config, with_defaults
from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.loader.loader import open_loader
from jaxsyn.data.loader.transforms import iterate_translations
from jaxsyn.data.store.dataset import Split
from jaxsyn.decode.beam import Beam
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.examples import Batcher
from jaxsyn.decode.translator import Translator
from jaxsyn.errors import InputError
from jaxsyn.plan import Plan
from jaxsyn.scoring.metrics import LIKELIHOOD
from jaxsyn.scoring.selection import Selector
from jaxsyn.training import hosts
from jaxsyn.training.log import Figures, Sample
from jaxsyn.training.loop import ValidationScores
from jaxsyn.training.mesh import Layout
from jaxsyn.training.objective import report
from jaxsyn.training.step import evaluate_step
from jaxsyn.utils.progress import Bar

MAX_LENGTH = 1024  # subwords of a side

AttentionLogger = Callable[[Any], Figures]


class Validator:
  """Function that scores parameters on a split, called by the training loop.

  Batches have their own shapes. Sums and counts are added over all sentences, so
  that results do not depend on batches or devices.
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
    """Reads the validation split; opens a translator for translation metrics.

    Args:
      plan: Plan of the run.
      layout: Devices.
      split: Validation split.
      batch_transform: Function of the host batches of which losses are computed:
        that of the user, and teachers.
      split_transform: Function of the user on the host batches to translate.
      attention_logger: Function that draws the attention of parameters. It is
        called on the main process only.
    """
    config: Config = with_defaults(plan.config)
    self._layout, self._recipe = layout, plan.recipe
    self._attention_logger = attention_logger
    longest = _check_lengths(split)
    batch = dataclasses.replace(
      config.batch,
      tokens=max(config.batch.tokens, longest * layout.rows * 8),
      shapes=0,
      row_multiple=layout.rows,  # results do not depend on the batches
      length_multiple=1,
    )
    self._loader = open_loader(
      split,
      plan.features,
      data=config.data,
      batch=batch,
      seed=config.seed,
      training=False,
      shard=layout.host_shard,
      batch_transform=batch_transform,
    )
    self._evaluate = functools.partial(evaluate_step, recipe=plan.recipe)
    self._translates = config.train.selection != LIKELIHOOD
    if self._translates:
      self._open_translator(plan, config, split, split_transform)

  def _open_translator(
    self,
    plan: Plan,
    config: Config,
    split: Split,
    split_transform: BatchTransform | None,
  ) -> None:
    dataset, train = split.dataset, config.train
    count = train.validation_sentences or len(split)
    references = dataset.text(split.name, "target")[:count]
    sources = dataset.text(split.name, "source")
    self._selector = Selector(train, references)
    sample_count = min(count, train.writers.samples)
    self._samples = list(zip(sources[:sample_count], references))
    # Each host translates a range of the sentences.
    index, processes = jax.process_index(), jax.process_count()
    begin, end = (count * i // processes for i in (index, index + 1))
    examples = iterate_translations(split, config.data, config.seed)
    self._examples = [
      (example,) for example in itertools.islice(examples, begin, end)
    ]
    self._translator = Translator(
      Ensemble((plan.recipe.model,)),
      dataset.vocabulary("target"),
      dataclasses.replace(
        config.decode, search=Beam(), beam=train.validation_beam, nbest=1
      ),
      Batcher(
        [[f for f in self._loader.features if f.startswith("source")]],
        batch_transform=split_transform,
      ),
      devices=jax.local_devices(),
    )

  def compile(self, params: Any) -> None:
    """Compiles all validation programs for the given parameter shapes."""
    for batch in self._loader.empty():
      self._program(params, self._layout.place_rows(batch))
    if self._translates:
      # Without shardings, since each device translates other sentences.
      shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params
      )
      self._translator.compile([shapes], self._examples)

  def _program(self, params: Any, placed: Any) -> Any:
    return self._layout.compile("evaluate", self._evaluate, params, placed)

  def __call__(self, params: Any) -> ValidationScores:
    """Computes the validation scores of model parameters.

    Values are "loss" and its terms; "log_likelihood", the mean log probability of
    a target subword, and "perplexity"; auxiliary metrics of the losses; and the
    metric that selects, with its "tokenizer".
    """
    start = time.monotonic()
    is_main = jax.process_index() == 0
    values = self._losses(params)
    rank, samples = [values["log_likelihood"]], []
    figures: Figures = ()
    if self._translates or self._attention_logger:
      params = self._layout.replicate(params)
    if self._translates:
      texts = self._translate(params)
      samples = [
        Sample(source, reference, text)
        for (source, reference), text in zip(self._samples, texts)
      ]
      selected = self._selector(texts)
      values |= selected.values
      rank.insert(0, selected.compared)
    values["seconds"] = time.monotonic() - start
    if self._attention_logger and is_main:
      figures = self._attention_logger(_on_one_device(params))
    return ValidationScores(values, rank, samples, figures)

  def _losses(self, params: Any) -> dict[str, Any]:
    """Returns mean losses, log likelihood and metrics of the validation split."""
    totals: dict[tuple[str, str], Any] = collections.defaultdict(
      lambda: np.zeros(2)
    )
    bar = Bar("validating", unit="batch", silent=jax.process_index() != 0)
    with contextlib.closing(bar):
      for batch in self._loader.in_order():
        placed = self._layout.place_rows(batch)
        sums = jax.device_get(self._program(params, placed)(params, placed))
        bar.advance()
        sums["log_p"] = {"": sums["log_p"]}
        for kind, pairs in sums.items():
          for name, pair in pairs.items():
            totals[kind, name] += np.asarray(pair, np.float64)

    def means(kind: str) -> Mapping[str, float]:
      return {
        name: float(total / max(count, 1.0))
        for (of_kind, name), (total, count) in totals.items()
        if of_kind == kind
      }

    log_likelihood = means("log_p")[""]
    return {
      **report(means("terms"), self._recipe.losses),
      "log_likelihood": log_likelihood,
      "perplexity": math.exp(min(-log_likelihood, 100.0)),
      **means("shares"),
    }

  def _translate(self, params: Any) -> list[str]:
    """Translates the split on all hosts; returns texts in split order."""
    bar = Bar(
      "translating",
      total=len(self._examples),
      unit="sentence",
      note=self._translator.note,
      silent=jax.process_index() != 0,
    )
    with contextlib.closing(bar):
      nbest = self._translator(
        [params], self._examples, on_progress=bar.advance
      )
    self._translator.forget_params()  # training needs the memory
    texts = [best[0].text if best else "" for best in nbest]
    return list(itertools.chain.from_iterable(hosts.all_gather_json(texts)))


def _on_one_device(params: Any) -> Any:
  """Returns the copies of replicated arrays on this host's first device."""
  if jax.device_count() == 1:
    return params
  return jax.tree.map(lambda x: x.addressable_data(0), params)


def _check_lengths(split: Split) -> int:
  """Returns a split's maximum length in subwords; InputError above the limit.

  Raises:
    InputError: It exceeds MAX_LENGTH, which would need too much memory.
  """
  lengths = np.maximum(split.lengths.source, split.lengths.target)
  longest = int(lengths.max(initial=0))
  if longest > MAX_LENGTH:
    line = split[int(lengths.argmax())]["line"]
    raise InputError(
      f"split {split.name}, line {line}: {longest} subwords on one side, more "
      f"than {MAX_LENGTH}. It is no sentence; remove it from both raw files and "
      "prepare the data again."
    )
  return longest
