"""Interface of encoder-decoders, and the features of their batches.

No other package depends on the kind of a model; its options are an
`Architecture` (`jaxsyn.models.spec`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.arrays.shapes import split
from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.schema import BOS, PAD
from jaxsyn.models.layers import Embedding
from jaxsyn.models.spec import ModelSpec
from jaxsyn.syntax import Modifier, ModifierSpec, SentenceFeatures


class EncoderDecoder(nn.Module):
  """Base class of encoder-decoders, with embeddings and their modifiers.

  Training calls `encode`, `decode` and `logits`; decoding calls `encode`,
  `project_memory`, `start`, `advance` and `reorder`. Decoding reorders
  sentences and lengthens caches: the first axis of every array in `encoded` and
  in a cache is the sentence, and an axis that grows with T holds outputs from
  its start, followed by zeros. `features.train` enables dropout and noise.
  """

  spec: ModelSpec

  def encode(self, id_BS: Array, source: SentenceFeatures) -> Any:
    """Encodes source subwords and their features; returns a pytree."""
    raise NotImplementedError

  def decode(
    self, encoded: Any, input_BT: Array, target: SentenceFeatures
  ) -> Array:
    """Returns decoder states; each position sees only earlier target subwords.

    Args:
      encoded: Result of `encode`.
      input_BT: Target subwords shifted right, BOS first.
      target: Features of the target, by positions of `input_BT`.
    """
    raise NotImplementedError

  def logits(self, state_BTD: Array) -> Array:
    """Computes the logits (BTV) of each position from its decoder state alone.

    Training computes some positions at a time where all would not fit.
    """
    raise NotImplementedError

  def project_memory(self, encoded: Any) -> Any:
    """Extends an encoded batch with values that all decoding steps share."""
    raise NotImplementedError

  def start(self, encoded: Any, beams: int, length: int) -> Any:
    """Returns the decoder cache before the first step.

    Args:
      encoded: Result of `project_memory`.
      beams: Number N of hypotheses per sentence.
      length: Maximum number T of outputs.
    """
    raise NotImplementedError

  def advance(
    self, encoded: Any, cache: Any, token_BN: Array, at: Array
  ) -> tuple[Array, Any]:
    """Runs one decoding step; returns the logits (BNV) and the new cache.

    Args:
      encoded: Result of `project_memory`.
      cache: Cache of `start` or of the previous step.
      token_BN: Last subword of each hypothesis; BOS at position 0.
      at: Position of that subword, a scalar; the search maps this method over
        sentences with different positions.
    """
    raise NotImplementedError

  def reorder(self, cache: Any, beam_BN: Array) -> Any:
    """Returns the cache with its hypotheses reordered as in `beam_BN`.

    This default is for arrays whose first axes are sentence and hypothesis.
    """
    return jax.tree.map(lambda x: gather_beams(x, beam_BN), cache)

  def setup(self) -> None:
    spec, model = self.spec, self.spec.model

    def table(size: int) -> Embedding:
      return Embedding(
        size,
        model.width,
        dtype=model.dtype,
        embedding_init=self._embedding_init(),
      )

    def module(name: str, modifier: ModifierSpec, stack: str) -> Modifier:
      return modifier.make(spec.attention_site(stack, -1).for_modifier(name))

    self.target_table = table(spec.target_vocabulary)
    if model.tie_embeddings:
      self.source_table = self.target_table
    else:
      self.source_table = table(spec.source_vocabulary)
    for name, modifier in spec.modifiers.modifiers_at_embeddings("encoder"):
      setattr(self, name, module(name, modifier, "encoder"))
    for stack in ("encoder", "decoder"):
      for name, modifier in spec.modifiers.shared_modifiers(stack):
        setattr(self, f"{stack}_{name}", module(name, modifier, stack))

  def _embedding_init(self) -> nn.initializers.Initializer:
    return nn.initializers.normal(self.spec.model.width**-0.5)

  def _embed(self, table: Embedding, id_BS: Array) -> Array:
    return table(id_BS)

  def _embed_source(self, id_BS: Array, features: SentenceFeatures) -> Array:
    """Embeds source subwords and applies the embedding modifiers."""
    x_BSD = self._embed(self.source_table, id_BS)
    for name, _ in self.spec.modifiers.modifiers_at_embeddings("encoder"):
      x_BSD = getattr(self, name).embed(x_BSD, features)
    return x_BSD

  def _finish_encoding(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    """Applies the modifiers that change the encoder's output."""
    for name, _ in self.spec.modifiers.modifiers_at_embeddings("encoder"):
      x_BSD = getattr(self, name).adapt_encoding(x_BSD, features)
    return x_BSD

  def _with_shared_features(
    self, features: SentenceFeatures, stack: str
  ) -> SentenceFeatures:
    """Adds values that modifiers reuse in all layers of a stack to the features."""
    shared = {
      name: getattr(self, f"{stack}_{name}").make_shared_features(features)
      for name, _ in self.spec.modifiers.shared_modifiers(stack)
    }
    return dataclasses.replace(features, shared_features=shared)


def gather_beams(x: Array, beam_BN: Array) -> Array:
  """Selects hypotheses of each sentence by index, along axis 1."""
  # By rows: 24 moves of 10 MB in a loop took 11.8 ms of processor time, and
  # 14.6 ms with `take_along_axis`.
  B, N = x.shape[:2]
  row_BN = beam_BN + N * jnp.arange(B)[:, None]
  rows = x.reshape(B * N, *x.shape[2:])
  return rows.at[row_BN].get(mode="promise_in_bounds")


def make(spec: ModelSpec) -> EncoderDecoder:
  """Creates the Flax module of a model from its specification."""
  return spec.architecture.module(spec)


def sentence_features(
  batch: Mapping[str, Array], side: str
) -> SentenceFeatures:
  """Extracts the sentence features of one side (source, target) of a batch.

  `source_tree_distance_BWW` of the batch becomes `tree_distance_BWW`, and
  `target_parent_mid_BT` becomes `parent_mid_BS`.

  Args:
    batch: Arrays of `jaxsyn.data.loader.loader`.
    side: "source" or "target".
  """
  letter = "S" if side == "source" else "T"
  id_BS = batch[f"{side}_id_B{letter}"]
  arrays: dict[str, Any] = {"real_BS": id_BS != PAD}
  for field in dataclasses.fields(SentenceFeatures):
    if not field.name[-1].isupper() or field.name in arrays:
      continue
    feature, letters = split(field.name)
    name = f"{side}_{feature}_{letters.replace('S', letter)}"
    if name in batch:
      arrays[field.name] = batch[name]
  annotation_names = {name: f"{side}_{name}_BW" for name in ANNOTATIONS}
  annotations = {
    n: batch[key] for n, key in annotation_names.items() if key in batch
  }
  return SentenceFeatures(**arrays, annotations=annotations)


def shift_right(id_BT: Array) -> Array:
  """Returns the decoder's input: BOS followed by all but the last subword."""
  first_B1 = jnp.full_like(id_BT[:, :1], BOS)
  return jnp.concatenate([first_B1, id_BT[:, :-1]], axis=1)


def forward(
  model: EncoderDecoder, batch: Mapping[str, Array], *, train: bool
) -> Array:
  """Returns next-subword logits (BTV) at all target positions.

  It is used as a method, `model.apply(variables, batch, train=True,
  method=forward)`, and by `init`, because it reads every parameter.
  """
  return model.logits(states(model, batch, train=train))


def states(
  model: EncoderDecoder,
  batch: Mapping[str, Array],
  *,
  train: bool,
  full_context: bool = False,
) -> Array:
  """Encodes and decodes a batch; returns the decoder states (BTD).

  Features of the target are those of the predicted subwords, except `real_BS`,
  which is that of the decoder's input. It is used as `forward` is.

  Args:
    batch: Arrays of `jaxsyn.data.loader.loader`.
    train: Whether dropout and the noise of modifiers are on.
    full_context: Whether later positions are visible, for losses on attention.
  """
  source = dataclasses.replace(sentence_features(batch, "source"), train=train)
  encoded = model.encode(batch["source_id_BS"], source)
  input_BT = shift_right(batch["target_id_BT"])
  target = dataclasses.replace(
    sentence_features(batch, "target"),
    real_BS=input_BT != PAD,
    full_context=full_context,
    train=train,
  )
  return model.decode(encoded, input_BT, target)


def arrays_by_name(tree: Any) -> dict[str, Any]:
  """Returns the arrays of a pytree by path, such as "encoder_0/norm/scale"."""
  leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
  return {
    jax.tree_util.keystr(path, simple=True, separator="/"): leaf
    for path, leaf in leaves
  }
