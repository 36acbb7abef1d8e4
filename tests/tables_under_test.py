"""A model that is a table, and a search over it in plain Python.

The next subword depends on a hash of the source and of everything before it,
so that each hypothesis has a future of its own and a search is tested without
any network. The search is fairseq's: a hypothesis ends where EOS is
among the N best of the 2N best continuations, and a sentence is finished when
N have ended.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import jaxsyn.decode.strategies  # noqa: F401 (strategies register themselves)
from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.search import DecodeRequest, Decoding
from jaxsyn.decode.strategies import Decode
from jaxsyn.options import ConfigPath, from_config

ROWS = 4093  # of the table
STEP, MORE = 1_000_003, 7919  # of the hash


class Tables(nn.Module):
  """The contract of models; parameters {"logits": (ROWS, V)}."""

  vocabulary: int

  def setup(self):
    shape = ROWS, self.vocabulary
    self.logits = self.param("logits", nn.initializers.normal(), shape)

  def encode(self, id_BS, source):
    del source
    place_S = jnp.arange(1, id_BS.shape[1] + 1, dtype=jnp.uint32)
    return jnp.sum(id_BS.astype(jnp.uint32) * place_S, axis=1)

  def project_memory(self, hash_B):
    return hash_B

  def start(self, hash_B, beams, length):
    del length
    return jnp.repeat(hash_B[:, None], beams, axis=1)

  def advance(self, hash_B, hash_BN, token_BN, at):
    del hash_B, at
    hash_BN = hash_BN * STEP + token_BN.astype(jnp.uint32) * MORE
    return self.logits[hash_BN % ROWS], hash_BN

  def reorder(self, hash_BN, beam_BN):
    return jnp.take_along_axis(hash_BN, beam_BN, axis=1)


def drawn(vocabulary: int, end: float, seed: int = 0) -> dict[str, jax.Array]:
  """Random parameters.

  Args:
    vocabulary: V.
    end: what is added to the logits of EOS.
    seed: of the draw.
  """
  rng = np.random.default_rng(seed)
  logits = rng.normal(0, 1.5, (ROWS, vocabulary))
  logits[:, EOS] += end
  return {"logits": jnp.asarray(logits, jnp.float32)}


def searched(
  model, params, sources, *, decode: Decode, length: int, piece_rank=None
):
  """Returns the finished hypotheses of sources, searched together."""
  decoding = Decoding(model, params, piece_rank)
  step = decode.search.step
  search = decoding.begin(
    sources,
    hypotheses=decode.search.hypotheses(decode),
    length=length,
    cache_length=length,
    strategy_state=decode.search.begin(sources.request, decode),
  )
  return jax.lax.while_loop(
    lambda search: search.open_B.any(),
    lambda search: step(decoding, search, decode),
    step(decoding, search, decode),
  ).ended


def asked(limits) -> DecodeRequest:
  """Longest outputs of sentences that stand at 0, 1, 2, ..."""
  return DecodeRequest(jnp.asarray(limits, jnp.int32), jnp.arange(len(limits)))


def by(beam: int, penalty: str = "fairseq", **fields) -> Decode:
  """How to search."""
  fields = {"search": "beam", **fields}
  fields |= {"beam": beam, "length_penalty": penalty}
  return from_config(Decode, fields, ConfigPath("decode"))


@dataclasses.dataclass(frozen=True)
class Ended:
  """A hypothesis with its EOS."""

  tokens: tuple[int, ...]
  log_p: float
  score: float


def stepped(params, ids: list[int]):
  """log p of the table, the state after a source, and the state after a subword.

  Args:
    params: of `Tables`.
    ids: source subwords, without pads.
  """
  logits = np.asarray(params["logits"], np.float64)
  log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
  state = sum(i * place for place, i in enumerate(ids, start=1)) % 2**32
  return log_p, state, lambda s, token: (s * STEP + token * MORE) % 2**32


def search_by_loops(
  params, ids: list[int], limit: int, decode: Decode
) -> list[Ended]:
  """The N best hypotheses of one sentence, best first.

  Args:
    params: of `Tables`.
    ids: source subwords, without pads.
    limit: longest output, EOS included.
    decode: how.
  """
  log_p, state, step = stepped(params, ids)

  def penalty(length: int) -> float:
    if decode.length_penalty == "gnmt":
      return ((5 + length) / 6) ** decode.alpha
    return length**decode.alpha

  beams = [((), 0.0, step(state, BOS))]
  ended: list[Ended] = []
  for length in range(1, limit + 1):
    candidates = [
      ((*tokens, token), total + log_p[state % ROWS, token], state)
      for tokens, total, state in beams
      for token in range(log_p.shape[1])
      if token not in (PAD, BOS) and (length < limit or token == EOS)
    ]
    candidates.sort(key=lambda candidate: -candidate[1])
    candidates = candidates[: 2 * decode.beam]
    for tokens, total, _ in candidates[: decode.beam]:
      if tokens[-1] == EOS:
        ended.append(Ended(tokens, total, total / penalty(length)))
    ended = sorted(ended, key=lambda one: -one.score)[: decode.beam]
    beams = [
      (tokens, total, step(state, tokens[-1]))
      for tokens, total, state in candidates
      if tokens[-1] != EOS
    ][: decode.beam]
    if len(ended) == decode.beam:
      open_best = max((b[1] for b in beams), default=-math.inf)
      can_win = open_best / penalty(limit) > ended[-1].score
      if decode.stop == "first" or not can_win:
        break
  return ended
