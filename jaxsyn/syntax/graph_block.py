"""Gated graph convolutions over the dependency tree.

Marcheggiani & Titov 2017, "Encoding Sentences with Graph Convolutional Networks
for Semantic Role Labeling" (arXiv:1703.04826), Eqs. 3 to 5; in translation, on
top of a recurrent encoder: Bastings et al. 2017, "Graph Convolutional Encoders
for Syntax-aware Neural Machine Translation" (arXiv:1704.04675). Both cited from memory.

  h'_v = ReLU(Σ_u g_uv (V_dir h_u + b_dir,rel)),  g_uv = σ(h_u · v̂_dir + b̂_dir,rel)

over the parent u of v, its children and v itself: three directions. An edge
has the relation of the word below it.

Letters: P node, a word or a subword; R relation; X another word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.arrays.product import product
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import CountOrOff
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.heads import HeadChoice
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier, ModifierSpec, StackShape


class _Direction(nn.Module):
  """Weights and gates of the messages along edges in one direction.

  In the formula above, the weights are V and b, and the gates v̂ and b̂.
  """

  labels: int
  dtype: str

  @nn.compact
  def __call__(
    self, h_BPD: Array, label_BPR: Array
  ) -> tuple[Array, Array, Array, Array]:
    """Returns the message values, gate logits and biases of all nodes.

    They are V h, h · v̂, b and b̂.

    Args:
      h_BPD: Sending nodes.
      label_BPR: Relations of their edges, one-hot.

    Returns:
      value_BPD, logit_BP, bias_BPD and bias_logit_BP, all float32.
    """
    D, zeros = h_BPD.shape[-1], nn.initializers.zeros_init()
    value_BPD = nn.Dense(
      D,
      use_bias=False,
      dtype=self.dtype,
      kernel_init=nn.initializers.xavier_uniform(),
      dot_general=product,
      name="value",
    )(h_BPD).astype(jnp.float32)
    bias_RD = self.param("bias_RD", zeros, (self.labels, D))
    bias_BPD = jnp.einsum("BPR,RD->BPD", label_BPR, bias_RD)
    gate_D = self.param("gate_D", nn.initializers.normal(D**-0.5), (D,))
    gate_R = self.param("gate_R", zeros, (self.labels,))
    logit_BP = jnp.einsum("BPD,D->BP", h_BPD.astype(jnp.float32), gate_D)
    return value_BPD, logit_BP, bias_BPD, label_BPR @ gate_R


class _Convolution(nn.Module):
  """Graph convolution over each word, its parent and its children."""

  relations: int
  dtype: str

  def setup(self) -> None:
    labels = self.relations + 1  # 0: unknown relation
    self.from_parent = _Direction(labels, self.dtype)
    self.from_children = _Direction(labels, self.dtype)
    self.from_itself = _Direction(1, self.dtype)

  def __call__(
    self,
    word_BWD: Array,
    parent_BWX: Array,
    label_BWR: Array,
  ) -> tuple[Array, Array]:
    """Returns the summed messages to each word, and the gates between words.

    Args:
      word_BWD: Words.
      parent_BWX: Parents (`SentenceFeatures.is_parent_BWX`).
      label_BWR: Relation of each word, one-hot.

    Returns:
      message_BWD, the ReLU of the sum of all messages, and gate_BWX, the gate g
      of the message from x to w, 0 for other pairs.
    """
    parent_BWX = parent_BWX.astype(jnp.float32)
    # From the parent x to w, with w's relation.
    value, logit_BX, bias, bias_logit_BW = self.from_parent(word_BWD, label_BWR)
    gate_BWX = jax.nn.sigmoid(logit_BX[:, None, :] + bias_logit_BW[:, :, None])
    gate_BWX = gate_BWX * parent_BWX
    sum_BWD = gate_BWX @ value + gate_BWX.sum(2, keepdims=True) * bias
    # From each child w to x, with w's relation too.
    value, logit, bias, bias_logit = self.from_children(word_BWD, label_BWR)
    gate_BW1 = jax.nn.sigmoid(logit + bias_logit)[..., None]
    sent_BWD = gate_BW1 * (value + bias)
    sum_BWD += jnp.einsum("BWX,BWD->BXD", parent_BWX, sent_BWD)
    all_gates_BWX = gate_BWX + jnp.swapaxes(gate_BW1 * parent_BWX, 1, 2)
    one_BW1 = jnp.ones((*word_BWD.shape[:2], 1))
    value, logit, bias, bias_logit = self.from_itself(word_BWD, one_BW1)
    self_BWD = jax.nn.sigmoid(logit + bias_logit)[..., None] * (value + bias)
    return jax.nn.relu(sum_BWD + self_BWD), all_gates_BWX


class _GraphBlock(Modifier):
  def setup(self) -> None:
    spec: GraphBlock = self.spec
    self.convolutions = [
      _Convolution(self.site.relations, self.site.dtype)
      for _ in range(spec.depth)
    ]

  def _message_BSD(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    """Returns what the graph convolutions add to each subword's vector."""
    subwords_BWS = features.in_word_BWS.astype(jnp.float32)
    count_BW1 = subwords_BWS.sum(2, keepdims=True)
    mean_BWS = subwords_BWS / jnp.maximum(count_BW1, 1.0)
    label_BWR = jax.nn.one_hot(features.relation_BW, self.site.relations + 1)
    parent_BWX = features.is_parent_BWX
    word_BSW = jnp.swapaxes(subwords_BWS, 1, 2)
    first_BWD = mean_BWS @ x_BSD.astype(jnp.float32)
    word_BWD, gate_BWX = first_BWD, jnp.zeros(())
    for convolution in self.convolutions:
      message_BWD, layer_gate_BWX = convolution(word_BWD, parent_BWX, label_BWR)
      word_BWD = word_BWD + message_BWD
      gate_BWX += layer_gate_BWX / self.spec.depth
    gate_BQM = jnp.einsum("BSW,BWX,BRX->BSR", word_BSW, gate_BWX, word_BSW)
    publish(self, "heard_BQM", features.where_parsed(gate_BQM, 0.0))
    return word_BSW @ (word_BWD - first_BWD)

  def _with_message(
    self, out_BSD: Array, x_BSD: Array, features: SentenceFeatures
  ) -> Array:
    message_BSD = self._message_BSD(x_BSD, features).astype(out_BSD.dtype)
    return features.where_parsed(out_BSD + message_BSD, out_BSD)

  def embed(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    if self.spec.at != "before":
      return x_BSD
    return self._with_message(x_BSD, x_BSD, features)

  def adapt_encoding(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    if self.spec.at != "after":
      return x_BSD
    return self._with_message(x_BSD, x_BSD, features)

  def adapt_output(self, out_BQD: Array, features: SentenceFeatures) -> Array:
    return self._with_message(out_BQD, features.inputs[-1], features)


@dataclasses.dataclass(frozen=True)
class GraphBlock(ModifierSpec):
  """Gated graph convolutions over each word, its parent and its children.

  Every layer has a residual connection. All subwords of a word get the same
  message; EOS and sentences without a tree get no message. A word without
  subwords is skipped: its children depend on its own parent. As in the papers,
  messages are not normalized by the number of edges; b̂ is initialized to 0.
  Marcheggiani & Titov's code (from memory) drops edges in training, initializes
  b̂ of parents and children to 1, and has no bias for the word itself.
  """

  depth: CountOrOff = option(1, "Number L of convolution layers; 0: none.")
  at: Literal["before", "after", "beside"] = option(
    "before",
    'Place of the convolutions: "before", on the embeddings, before positions '
    'are added; "after", on the encoder\'s output, as in Bastings et al.; '
    '"beside", in parallel with the attention of selected Transformer layers, '
    "added to the same residual sum.",
  )
  layers: HeadChoice = option(
    None,
    'Encoder layers with convolutions, from 0, with at="beside"; None: all.',
  )

  modifier: ClassVar[type[Modifier]] = _GraphBlock
  required_features: ClassVar[tuple[str, ...]] = ("head", "relation")
  disabled_options: ClassVar[Mapping[str, Any]] = {"depth": 0}

  @property
  def at_embeddings(self) -> bool:
    return self.at != "beside"

  def in_layer(self, layer: int) -> bool:
    return self.layers is None or layer in self.layers

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    if self.layers is not None and self.at_embeddings:
      raise (at / "layers").error(
        f"={self.layers} does nothing with at={self.at!r}; leave it at None, or "
        "set at='beside'."
      )
    for layer in self.layers or ():
      if not 0 <= layer < stack_shape.layers:
        raise (at / "layers").error(
          f": {layer} is not one of the {stack_shape.layers} layers of the "
          f"{stack_shape.stack}; they count from 0 to {stack_shape.layers - 1}."
        )
