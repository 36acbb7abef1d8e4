"""The contract between models and everything that uses them.

A model family is a Linen module made from a `ModelSpec`. Training knows only
`encode` and `decode`; decoding knows only `encode` and the other four and never looks into
a cache. Nothing outside this room knows what kind of model it is.

  encode(id_BS, source: View, *, train) -> encoded
  decode(encoded, input_BT, target: View, *, train) -> logits_BTV
  remember(encoded) -> encoded
  start(encoded, beams, length) -> cache of N beams a sentence
  advance(encoded, cache, token_BN, at) -> logits_BNV, cache
  reorder(cache, beam_BN) -> cache, after hypotheses changed their beam

What options and parts it takes is said by `jaxsyn.models.spec.Family`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.schema import BOS, PAD
from jaxsyn.models.spec import ModelSpec
from jaxsyn.shapes import split
from jaxsyn.syntax import View

Array = jax.Array


def make(spec: ModelSpec) -> nn.Module:
  """The module of the spec's family."""
  return spec.family.module(spec)


def view_of(batch: Mapping[str, Array], side: str) -> View:
  """The facts of one side of a batch.

  Args:
    batch: arrays named side_fact_LETTERS, as `jaxsyn.data.loader.split` makes them.
    side: "source" or "target".
  """
  letter = "S" if side == "source" else "T"
  id_BS = batch[f"{side}_id_B{letter}"]
  facts: dict[str, Any] = {"real_BS": id_BS != PAD}
  for field in dataclasses.fields(View):
    if not field.name[-1].isupper() or field.name in facts:
      continue
    fact, letters = split(field.name)
    name = f"{side}_{fact}_{letters.replace('S', letter)}"
    if name in batch:
      facts[field.name] = batch[name]
  said = {name: f"{side}_{name}_BW" for name in ANNOTATIONS}
  annotations = {n: batch[key] for n, key in said.items() if key in batch}
  return View(**facts, annotations=annotations)


def shift_right(id_BT: Array) -> Array:
  """The decoder's input: BOS first, the last subword dropped."""
  first_B1 = jnp.full_like(id_BT[:, :1], BOS)
  return jnp.concatenate([first_B1, id_BT[:, :-1]], axis=1)


def forward(
  model: nn.Module,
  batch: Mapping[str, Array],
  *,
  train: bool,
  full_context: bool = False,
) -> Array:
  """logits_BTV of every target position, given the true past.

  Used as a method of a family: `model.apply(variables, batch, train=True,
  method=forward)`; it touches every parameter, so `init` uses it too.

  Facts of the target side are told by the subword that a position predicts,
  while `real_BS` is of what it reads.

  Args:
    batch: see `jaxsyn.data.loader.split`.
    train: dropout and training-only noise are on.
    full_context: the future is shown as well: for losses on attention.
  """
  source = view_of(batch, "source")
  encoded = model.encode(batch["source_id_BS"], source, train=train)
  # The decoder reads subwords one to the right of those it predicts.
  input_BT = shift_right(batch["target_id_BT"])
  target = dataclasses.replace(
    view_of(batch, "target"),
    real_BS=input_BT != PAD,
    full_context=full_context,
  )
  return model.decode(encoded, input_BT, target, train=train)
