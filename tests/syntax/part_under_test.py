"""One stage of one part, on its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsyn.syntax import AttentionSite, ModifierSpec, SentenceFeatures

WHERE = AttentionSite(
  "encoder", 0, heads=2, width=8, dtype="float32", relations=5
)


def rescored(
  spec: ModifierSpec,
  score_BHQM,
  *,
  q_BQHK=None,
  k_BMHK=None,
  train: bool = False,
  key: int = 0,
  params=None,
  site: AttentionSite = WHERE,
  **facts,
):
  """The scores after a part of an encoder.

  Args:
    spec: of the part.
    score_BHQM: before.
    q_BQHK, k_BMHK: for parts that read them; else zeros.
    train, key: noise and its seed.
    params: of the part, if it has any.
    where: sizes; its heads must be those of the scores.
    **facts: fields of the view; all positions are real unless said otherwise.
  """
  score_BHQM = jnp.asarray(score_BHQM)
  B, H, Q, M = score_BHQM.shape
  facts = {"real_BS": jnp.ones((B, M), bool)} | {
    name: jnp.asarray(value) for name, value in facts.items()
  }
  position = jnp.arange(M)
  view = SentenceFeatures(
    **facts, position_Q=position[:Q], position_M=position, train=train
  )
  K = site.head_width
  return spec.make(site).apply(
    {"params": params or {}},
    score_BHQM,
    jnp.zeros((B, Q, H, K)) if q_BQHK is None else q_BQHK,
    jnp.zeros((B, M, H, K)) if k_BMHK is None else k_BMHK,
    view,
    method="rescore",
    rngs={"syntax": jax.random.key(key)},
  )
