"""Diverse beam search (Vijayakumar et al. 2018, arXiv:1610.02424, section 3).

The N hypotheses are divided into J groups of L = N / J. In each step the groups
are extended one after the other, each by beam search on

  log p(y) - strength · (number of hypotheses in earlier groups that have just
  been extended by the same subword)

summed over the positions of y (Hamming diversity, section 3.2). The L open
hypotheses of a group are counted. A group ends like a beam of size L; afterwards
its hypotheses are not counted.

The penalty affects which hypotheses are kept. Finished hypotheses are ranked
within their group, and reported, by the log probability of the model. The n-best
list contains the best hypothesis of each group, then the second best of each, and
so on. Its first entry is the result of a beam search of size L. Two groups can
find the same translation.

Letters: C continuation; J group; L hypothesis of a group; X subword of any
hypothesis of a group.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxsyn.decode.beam import Continuations, SelectedBeams, select_beams
from jaxsyn.decode.rank import NEG_INF, continuations
from jaxsyn.decode.search import DecodeRequest, Decoding, Next, Search
from jaxsyn.decode.strategy import Decode, DecodingStrategy
from jaxsyn.models.contract import gather_beams
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Amount, CountOrOff


@struct.dataclass
class _Groups:
  """State of the hypothesis groups in diverse beam search.

  Attributes:
    rank_BN: Log probabilities of the open hypotheses minus their penalties; one
      before the first subword, then N.
    open_BJ: Groups that are still searched.
  """

  rank_BN: Array
  open_BJ: Array


@dataclasses.dataclass(frozen=True)
class Diverse(DecodingStrategy):
  """Diverse beam search: groups of hypotheses with different subwords."""

  groups: CountOrOff = option(
    0,
    "Number of groups of hypotheses, a divisor of config.decode.beam; 0: one "
    "group for each hypothesis.",
  )
  strength: Amount = option(
    0.5,
    "Diversity penalty. In each step it is subtracted from the log "
    "probability of a subword once for every hypothesis in earlier groups "
    "that chose this subword in the same step.",
  )

  def begin(self, request: DecodeRequest, decode: Decode) -> _Groups:
    B, J = request.limit_B.size, self._group_count(decode)
    return _Groups(jnp.zeros((B, 1)), jnp.ones((B, J), bool))

  def step(self, decoding: Decoding, search: Search, decode: Decode) -> Search:
    new = decoding.advance(search)
    J, is_first = self._group_count(decode), search.last_BN.shape[1] == 1
    used_BV = jnp.zeros_like(new.logits_BNV[:, 0])
    row_B1 = jnp.arange(len(used_BV))[:, None]
    selections, ranks = [], []
    for group in range(J):
      # Hypothesis l of group j is hypothesis l * J + j of the sentence.
      first, stride = (0, 1) if is_first else (group, J)
      selected, rank_BL = self._step_group(
        search,
        new,
        decode,
        used_BV=used_BV,
        group=group,
        beams=slice(first, None, stride),
      )
      selected = dataclasses.replace(
        selected, beam_BN=selected.beam_BN * stride + first
      )
      counts_BL = selected.log_p_BN > NEG_INF / 2
      counts_BL = counts_BL & selected.open_B[:, None]
      used_BV = used_BV.at[row_B1, selected.last_BN].add(counts_BL)
      selections.append(
        dataclasses.replace(selected, open_B=selected.open_B[:, None])
      )
      ranks.append(rank_BL)
    joined: SelectedBeams = jax.tree.map(_interleave, *selections)
    return decoding.append(
      search,
      new.cache,
      joined.beam_BN if decode.beam > 1 else None,
      joined.last_BN,
      open_B=joined.open_B.any(1),
      token_BNT=joined.token_BNT,
      log_p_BN=joined.log_p_BN,
      ended=joined.ended,
      strategy_state=_Groups(_interleave(*ranks), joined.open_B),
    )

  def _step_group(
    self,
    search: Search,
    new: Next,
    decode: Decode,
    *,
    used_BV: Array,
    group: int,
    beams: slice,
  ) -> tuple[SelectedBeams, Array]:
    """Runs one beam-search step on the hypotheses of one group.

    Args:
      search: Search of all groups before the step.
      new: Distributions of the next subword, of all groups.
      decode: Options of decoding.
      used_BV: Number of hypotheses in earlier groups extended by each subword.
      group: Index of the group.
      beams: Hypotheses of the group among all of the sentence.

    Returns: The selected hypotheses, and rank_BL of the open ones.
    """
    J = self._group_count(decode)
    L = decode.beam // J
    state = search.strategy_state
    logits_BLV, lse_BL = new.logits_BNV[:, beams], new.lse_BN[:, beams]
    rank_BC, beam_BC, token_BC = continuations(
      logits_BLV - self.strength * used_BV[:, None],
      lse_BL,
      state.rank_BN[:, beams],
      search.at_limit_B,
      2 * L,
    )
    # Log probabilities of the same continuations, without the penalty.
    index_BC = beam_BC * logits_BLV.shape[-1] + token_BC
    logits_BX = logits_BLV.reshape(len(index_BC), -1)
    log_p_BC = gather_beams(search.log_p_BN[:, beams] - lse_BL, beam_BC)
    log_p_BC = log_p_BC + jnp.take_along_axis(logits_BX, index_BC, axis=1)
    log_p_BC = jnp.where(rank_BC > NEG_INF / 2, log_p_BC, NEG_INF)
    group_search = dataclasses.replace(
      search,
      token_BNT=search.token_BNT[:, beams],
      ended=jax.tree.map(lambda x: x[:, group::J], search.ended),
    )
    selected = select_beams(
      group_search,
      Continuations(log_p_BC, beam_BC, token_BC),
      decode,
      state.open_BJ[:, group],
    )
    rank_BL = gather_beams(rank_BC, selected.from_BN)
    return selected, jnp.where(
      selected.log_p_BN > NEG_INF / 2, rank_BL, NEG_INF
    )

  def _group_count(self, decode: Decode) -> int:
    return self.groups or decode.beam

  def check(self, at: ConfigPath, decode: Decode) -> None:
    super().check(at, decode)
    if decode.beam % self._group_count(decode):
      raise (at / "diverse" / "groups").error(
        f"={self.groups} must divide {at}.beam={decode.beam}."
      )


def _interleave(*groups: Array) -> Array:
  """Interleaves arrays of shape (B, L, ...) along axis 1."""
  x = jnp.stack(groups, 2)
  return x.reshape(x.shape[0], -1, *x.shape[3:])
