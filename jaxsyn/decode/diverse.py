"""Diverse beam search (Vijayakumar et al. 2018, arXiv:1610.02424, section 3).

The N hypotheses are J groups of L = N / J. In each step the groups choose one
after the other, each by beam search on

  log p(y) - strength · (how many hypotheses of the groups before it have just
  taken the same subword)

summed over the positions of y: the paper's Hamming diversity (section 3.2). What
counts are the L open hypotheses that a group keeps. A group is finished as a beam
of L is, and then takes nothing any more, and nothing of it counts.

The penalty decides which hypotheses are kept. Those that end are ranked in their
group, and reported, by the model's own log probability. The n-best list has the
best of each group, then the second best of each, and so on: the first is that of
the first group, which is a beam search of L, and as many as there are groups are
from different ones. Two groups may find the same translation.

Letters: C continuation; L hypothesis of a group; J group; X subword of any of
them.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxsyn.decode.beam import (
  Continuations,
  SelectedBeams,
  is_last,
  select_beams,
)
from jaxsyn.decode.rank import NEG_INF, continuations
from jaxsyn.decode.search import DecodeRequest, Decoding, Next, Search
from jaxsyn.decode.strategy import Decode, DecodingStrategy
from jaxsyn.models.contract import gather_beams
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Amount, CountOrOff


@struct.dataclass
class _Groups:
  """What is remembered of the groups.

  Attributes:
    rank_BN: what open hypotheses are compared by: log probabilities less the
      penalties so far. Before the first subword one, not N.
    open_BJ: groups that still search.
  """

  rank_BN: Array
  open_BJ: Array


@dataclasses.dataclass(frozen=True)
class Diverse(DecodingStrategy):
  """Diverse beam search: groups of hypotheses that avoid each other's subwords."""

  groups: CountOrOff = option(
    0,
    "Number of groups of hypotheses, which must divide "
    "config.decode.beam; 0: one group per hypothesis.",
  )
  strength: Amount = option(
    0.5,
    "Penalty on the log probability of a subword for each hypothesis of "
    "the previous groups that has just chosen it.",
  )

  def begin(self, request: DecodeRequest, decode: Decode) -> _Groups:
    B, J = request.limit_B.size, self._groups(decode)
    return _Groups(jnp.zeros((B, 1)), jnp.ones((B, J), bool))

  def step(self, decoding: Decoding, search: Search, decode: Decode) -> Search:
    new = decoding.advance(search)
    J, had = self._groups(decode), search.last_BN.shape[1]
    used_BV = jnp.zeros_like(new.logits_BNV[:, 0])
    row_B1 = jnp.arange(len(used_BV))[:, None]
    selections, ranks = [], []
    for group in range(J):
      beams = slice(group, None, J) if had > 1 else slice(None)
      one, rank_BL = self._of_group(
        search, new, decode, used_BV=used_BV, group=group, beams=beams
      )
      # Where its hypotheses are among all.
      step, first = (J, group) if had > 1 else (1, 0)
      one = dataclasses.replace(one, beam_BN=one.beam_BN * step + first)
      counts_BL = (one.log_p_BN > NEG_INF / 2) & one.open_B[:, None]
      used_BV = used_BV.at[row_B1, one.last_BN].add(counts_BL)
      selections.append(one)
      ranks.append(rank_BL)

    def joined(*parts: Array) -> Array:
      """Best of each group, second best of each, ..."""
      x = jnp.stack(parts, 2)
      return x.reshape(x.shape[0], -1, *x.shape[3:])

    all_of: SelectedBeams = jax.tree.map(
      joined,
      *(
        dataclasses.replace(one, open_B=one.open_B[:, None])
        for one in selections
      ),
    )
    open_BJ = all_of.open_B
    return decoding.follow(
      search,
      new.cache,
      all_of.beam_BN if decode.beam > 1 else None,
      all_of.last_BN,
      open_B=open_BJ.any(1),
      token_BNT=all_of.token_BNT,
      log_p_BN=all_of.log_p_BN,
      ended=all_of.ended,
      strategy_state=_Groups(joined(*ranks), open_BJ),
    )

  def _of_group(
    self,
    search: Search,
    new: Next,
    decode: Decode,
    *,
    used_BV: Array,
    group: int,
    beams: slice,
  ) -> tuple[SelectedBeams, Array]:
    """What a group keeps, and rank_BL of its open hypotheses.

    Args:
      search: of all groups.
      new: of all hypotheses.
      decode: the other options.
      used_BV: how many hypotheses of the groups before took each subword.
      group: which it is.
      beams: its hypotheses among all.
    """
    J, L = self._groups(decode), decode.beam // self._groups(decode)
    logits_BLV, lse_BL = new.logits_BNV[:, beams], new.lse_BN[:, beams]
    log_p_BL, rank_BL = (
      search.log_p_BN[:, beams],
      search.strategy_state.rank_BN[:, beams],
    )
    rank_BC, beam_BC, token_BC = continuations(
      logits_BLV - self.strength * used_BV[:, None],
      *(lse_BL, rank_BL, is_last(search), 2 * L),
    )
    at_BC = beam_BC * logits_BLV.shape[-1] + token_BC
    flat_BX = logits_BLV.reshape(len(at_BC), -1)
    log_p_BC = gather_beams(log_p_BL - lse_BL, beam_BC)
    log_p_BC = log_p_BC + jnp.take_along_axis(flat_BX, at_BC, axis=1)
    log_p_BC = jnp.where(rank_BC > NEG_INF / 2, log_p_BC, NEG_INF)
    mine = dataclasses.replace(
      search,
      token_BNT=search.token_BNT[:, beams],
      ended=jax.tree.map(lambda x: x[:, group::J], search.ended),
    )
    continuations_ = Continuations(log_p_BC, beam_BC, token_BC)
    selected = select_beams(
      mine, continuations_, decode, search.strategy_state.open_BJ[:, group]
    )
    rank_BL = gather_beams(rank_BC, selected.from_BN)
    return selected, jnp.where(
      selected.log_p_BN > NEG_INF / 2, rank_BL, NEG_INF
    )

  def _groups(self, decode: Decode) -> int:
    return self.groups or decode.beam

  def check(self, at: ConfigPath, decode: Decode) -> None:
    super().check(at, decode)
    if decode.beam % self._groups(decode):
      raise (at / "diverse" / "groups").error(
        f"={self.groups} must divide {at}.beam={decode.beam}."
      )
