"""A model that is a table, and a beam search over it in plain Python.

The next subword depends on a hash of the source and of all earlier subwords, so
that each hypothesis has a different continuation and a search is tested without a
network. The beam search is fairseq's: a hypothesis ends if EOS is in the better
half of the 2N best continuations, and a sentence is finished when N have ended.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from numpy.testing import assert_allclose

import jaxsyn.decode.strategies  # noqa: F401 (strategies register themselves)
from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.diverse import Diverse
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.search import DecodeRequest, Decoding
from jaxsyn.decode.strategies import Decode
from jaxsyn.options import ConfigPath, from_config

ROWS = 4093  # of the table
STEP, TOKEN = 1_000_003, 7919  # factors of the hash


class Tables(nn.Module):
  """A model with the decoding interface; parameters {"logits": (ROWS, V)}."""

  vocabulary: int

  def setup(self):
    shape = ROWS, self.vocabulary
    self.logits = self.param("logits", nn.initializers.normal(), shape)

  def encode(self, id_BS, source):
    del source
    position_S = jnp.arange(1, id_BS.shape[1] + 1, dtype=jnp.uint32)
    return jnp.sum(id_BS.astype(jnp.uint32) * position_S, axis=1)

  def project_memory(self, hash_B):
    return hash_B

  def start(self, hash_B, beams, length):
    del length
    return jnp.repeat(hash_B[:, None], beams, axis=1)

  def advance(self, hash_B, hash_BN, token_BN, at):
    del hash_B, at
    hash_BN = hash_BN * STEP + token_BN.astype(jnp.uint32) * TOKEN
    return self.logits[hash_BN % ROWS], hash_BN

  def reorder(self, hash_BN, beam_BN):
    return jnp.take_along_axis(hash_BN, beam_BN, axis=1)


class TableStates:
  """The states and log probabilities of the table for one source, in Python."""

  def __init__(self, params, ids):
    logits = np.asarray(params["logits"], np.float64)
    self._log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    hash_of_source = sum(i * n for n, i in enumerate(ids, start=1)) % 2**32
    self.first = self.next(hash_of_source, BOS)

  def next(self, state, token):
    return (state * STEP + token * TOKEN) % 2**32

  def log_p(self, state):
    return self._log_p[state % ROWS]

  def log_p_after(self, tokens):
    """Returns the log probability of each subword after `tokens`."""
    state = self.first
    for token in tokens:
      state = self.next(state, token)
    return self.log_p(state)


def random_params(vocabulary: int, end: float, seed: int = 0):
  """Returns random parameters, with `end` added to the logits of EOS."""
  rng = np.random.default_rng(seed)
  logits = rng.normal(0, 1.5, (ROWS, vocabulary))
  logits[:, EOS] += end
  return {"logits": jnp.asarray(logits, jnp.float32)}


def run_search(
  model, params, batch, request, *, decode: Decode, length: int, piece_rank=None
):
  """Returns the finished hypotheses of a batch."""
  decoding = Decoding(Ensemble((model,)), [params], piece_rank)
  step = decode.search.step
  search = decoding.begin(
    (batch,),
    request,
    hypotheses=decode.search.hypotheses(decode),
    length=length,
    cache_length=length,
    strategy_state=decode.search.begin(request, decode),
  )
  return jax.lax.while_loop(
    lambda search: search.open_B.any(),
    lambda search: step(decoding, search, decode),
    step(decoding, search, decode),
  ).ended


def request_of(limits) -> DecodeRequest:
  """Returns the request for sentences 0, 1, 2, ... with maximum lengths."""
  return DecodeRequest(jnp.asarray(limits, jnp.int32), jnp.arange(len(limits)))


def decode_options(beam: int, penalty: str = "fairseq", **fields) -> Decode:
  """Returns config.decode; the search is "beam" by default."""
  fields = {"search": "beam", **fields}
  fields |= {"beam": beam, "length_penalty": penalty}
  return from_config(Decode, fields, ConfigPath("decode"))


@dataclasses.dataclass(frozen=True)
class Ended:
  """A hypothesis, EOS included."""

  tokens: tuple[int, ...]
  log_p: float
  score: float


def search_tables(
  params, sources, request, decode: Decode, *, length: int, piece_rank=None
) -> list[list[Ended]]:
  """Returns the finished hypotheses of each source, in one jitted search."""
  id_BS = np.full((len(sources), max(map(len, sources))), PAD, np.int32)
  for row, ids in enumerate(sources):
    id_BS[row, : len(ids)] = ids
  model = Tables(params["logits"].shape[1])

  def run(params, id_BS, request):
    return run_search(
      model,
      params,
      {"source_id_BS": id_BS},
      request,
      decode=decode,
      length=length,
      piece_rank=piece_rank,
    )

  result = jax.device_get(jax.jit(run)(params, id_BS, request))
  return [
    [
      Ended(tuple(tokens[tokens != PAD].tolist()), log_p, score)
      for tokens, log_p, score in zip(*row, strict=True)
      if score > NEG_INF / 2
    ]
    for row in zip(result.token_BNT, result.log_p_BN, result.score_BN)
  ]


def assert_same_hypotheses(result, expected):
  """Asserts equal subwords and close log probabilities and scores."""
  assert [one.tokens for one in result] == [one.tokens for one in expected]
  assert_allclose(
    [(one.log_p, one.score) for one in result],
    [(one.log_p, one.score) for one in expected],
    rtol=1e-5,
    atol=1e-5,
  )


def search_by_loops(
  params, ids: list[int], limit: int, decode: Decode
) -> list[Ended]:
  """Returns the N best hypotheses of one sentence by beam search, best first.

  Diverse beam search returns the best of each group, then the second best of
  each, and so on; beam search is its special case of one group.
  """
  G, strength = 1, 0.0
  if isinstance(decode.search, Diverse):
    G, strength = decode.search.groups or decode.beam, decode.search.strength
  M, table = decode.beam // G, TableStates(params, ids)

  def penalty(length: int) -> float:
    if decode.length_penalty == "gnmt":
      return ((5 + length) / 6) ** decode.alpha
    return length**decode.alpha

  # (tokens, log p, log p minus diversity penalties, state)
  beams = [[((), 0.0, 0.0, table.first)] for _ in range(G)]
  ended: list[list[Ended]] = [[] for _ in range(G)]
  is_open = [True] * G
  for length in range(1, limit + 1):
    used = np.zeros(params["logits"].shape[1])
    for g in range(G):
      if not is_open[g]:
        continue
      new = [
        ((*tokens, token), total + p, rank + p - strength * used[token], state)
        for tokens, total, rank, state in beams[g]
        for token, p in enumerate(table.log_p(state))
        if token not in (PAD, BOS) and (length < limit or token == EOS)
      ]
      new = sorted(new, key=lambda one: -one[2])[: 2 * M]
      for tokens, total, _, _ in new[:M]:
        if tokens[-1] == EOS:
          ended[g].append(Ended(tokens, total, total / penalty(length)))
      ended[g] = sorted(ended[g], key=lambda one: -one.score)[:M]
      beams[g] = [
        (tokens, total, rank, table.next(state, tokens[-1]))
        for tokens, total, rank, state in new
        if tokens[-1] != EOS
      ][:M]
      if len(ended[g]) == M:
        best = max((total for _, total, _, _ in beams[g]), default=-math.inf)
        can_win = best / penalty(limit) > ended[g][-1].score
        is_open[g] = decode.stop == "bound" and can_win
      if is_open[g]:
        for tokens, *_ in beams[g]:
          used[tokens[-1]] += 1
    if not any(is_open):
      break
  return [ended[g][m] for m in range(M) for g in range(G) if m < len(ended[g])]
