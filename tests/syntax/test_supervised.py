"""Heads that learn to parse: whom they are to find, how they score."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, check_part, sentence

from jaxsyn.errors import InputError
from jaxsyn.models.contract import sentence_features
from jaxsyn.syntax import AttentionSite, SentenceFeatures
from jaxsyn.syntax.dbsa import Dbsa
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.syntax.sisa import Sisa
from jaxsyn.syntax.supervised import chain_BS, first_of_parent_BS

H, K = 3, 4
ENCODER = AttentionSite("encoder", 0, heads=H, width=H * K, dtype="float32")
DECODER = AttentionSite("decoder", 0, heads=H, width=H * K, dtype="float32")
RNG = np.random.default_rng(0)

# a@@ b | c@@ d | e, EOS, a pad; the second word is the root.
EXAMPLE = SentenceFeatures(
  real_BS=jnp.array([[True] * 6 + [False]]),
  word_BS=jnp.array([[0, 0, 1, 1, 2, -1, -1]]),
  head_BW=jnp.array([[1, 1, 1]]),
  parsed_B=jnp.ones(1, bool),
  position_Q=jnp.arange(7),
  position_M=jnp.arange(7),
)
CHAIN = [1, 2, 3, 3, 2, -1, -1]


def test_whom_to_find_against_loops():
  pairs = [sentence(words, 4, words) for words in (0, 1, 4, 9, 13)]
  view = sentence_features(batch_of(pairs, extra=2), "source")
  view = view.replace(parsed_B=jnp.array([1, 1, 1, 0, 1]))
  first, chain = first_of_parent_BS(view), chain_BS(view)
  for b, pair in enumerate(pairs):
    word, head = pair["source_word_BS"], pair["source_head_BW"]
    for i in range(first.shape[1]):
      if i >= len(word) or word[i] < 0 or b == 3:
        assert first[b, i] == chain[b, i] == -1
        continue
      parent = int(np.flatnonzero(word == head[word[i]])[0])
      assert first[b, i] == parent
      if word[i + 1] == word[i]:
        assert chain[b, i] == i + 1
      else:
        assert chain[b, i] == (i if head[word[i]] == word[i] else parent)


def test_a_parent_without_subwords_is_passed_over():
  # Words 0 to 4; 1 and 2 have no subword: 0 depends on 1, 1 on 2, 2 on 3, the
  # root; 4 depends on 2. So 0 and 4 are to find word 3.
  word_BS = jnp.array([[0, 0, 3, 3, 4, -1, -1]])
  view = EXAMPLE.replace(word_BS=word_BS, head_BW=jnp.array([[1, 2, 3, 3, 2]]))
  assert first_of_parent_BS(view).tolist() == [[2, 2, 2, 2, 2, -1, -1]]
  assert chain_BS(view).tolist() == [CHAIN]
  # Where the root has none, the words below it count as roots.
  word_BS = jnp.array([[0, 0, 2, -1, -1, -1, -1]])
  view = EXAMPLE.replace(word_BS=word_BS)
  assert first_of_parent_BS(view).tolist() == [[0, 0, 2, -1, -1, -1, -1]]
  assert chain_BS(view).tolist() == [[1, 1, 2, -1, -1, -1, -1]]


def numbers(*shape):
  return RNG.normal(size=shape).astype(np.float32)


def after(spec, site, view, seed=0):
  """The part on random numbers: its input, parameters, scores and maps."""
  rng = np.random.default_rng(seed)
  B, S = view.real_BS.shape
  heads = len(spec.heads)
  params = {
    "bilinear_HKK": rng.normal(size=(heads, K, K)).astype(np.float32),
    "bias_HK": rng.normal(size=(heads, K)).astype(np.float32),
  }
  score, q, k = (
    rng.normal(size=shape).astype(np.float32)
    for shape in ((B, H, S, S), (B, S, H, K), (B, S, H, K))
  )
  out, state = spec.make(site).apply(
    {"params": params},
    jnp.asarray(score),
    q / np.sqrt(K),
    k,
    view,
    method="rescore",
    mutable=[COLLECTION],
  )
  maps = {p.address.kind: p.value for p in Maps.of(state).published}
  return (score, q, k), params, np.asarray(out), maps


def leaky(x):
  return np.where(x > 0, x, 0.01 * x)


@pytest.mark.parametrize("heads", [(1,), (2, 0)])
@pytest.mark.parametrize("kind", [Sisa, Dbsa])
def test_scores_against_loops(kind, heads):
  (score, q, k), params, out, _ = after(kind(heads=heads), ENCODER, EXAMPLE)
  wanted = score.copy()
  for n, h in enumerate(heads):
    U, u = params["bilinear_HKK"][n], params["bias_HK"][n]
    for i, j in np.ndindex(7, 7):
      a, b = q[0, i, h], k[0, j, h]
      if kind is Sisa:
        theta = np.vstack([U, u])  # [leaky(q); 1]ᵀ Θ leaky(k)
        wanted[0, h, i, j] = np.r_[leaky(a), 1.0] @ theta @ leaky(b)
      else:  # (q U)·k / √K + u·k
        wanted[0, h, i, j] = a @ U @ b / np.sqrt(K) + u @ b
  np.testing.assert_allclose(out, wanted, atol=1e-5)


def test_without_bias_there_is_none():
  spec = Dbsa(bias=False)
  shapes = jax.eval_shape(
    lambda: spec.make(ENCODER).init(
      jax.random.key(0),
      jnp.zeros((1, H, 7, 7)),
      jnp.zeros((1, 7, H, K)),
      jnp.zeros((1, 7, H, K)),
      EXAMPLE,
      method="rescore",
    )
  )
  assert set(shapes["params"]) == {"bilinear_HKK"}


@pytest.mark.parametrize("place", [ENCODER, DECODER])
@pytest.mark.parametrize("full_context", [False, True])
def test_what_is_published_is_the_mean_weight_of_the_heads(place, full_context):
  view = EXAMPLE.replace(full_context=full_context)
  _, _, out, maps = after(Dbsa(heads=(0, 2)), place, view)
  masked = np.broadcast_to(view.real_BS[:, None, None], out.shape).copy()
  if place is DECODER and not full_context:
    masked &= np.tril(np.ones((7, 7), bool))
  weight = np.asarray(jax.nn.softmax(np.where(masked, out, -np.inf), axis=-1))
  np.testing.assert_allclose(
    np.exp(maps["log_parse_BQM"]), weight[:, [0, 2]].mean(1), atol=1e-6
  )
  assert np.array_equal(np.isneginf(maps["log_parse_BQM"]), ~masked[:, 0])
  assert maps["parent_BQ"].tolist() == [CHAIN]


def test_rows_of_the_next_state_are_told_by_their_subword():
  # With rows="input" the state after a subword parses it: row t + 1, column
  # h + 1 of the attention stand for subwords t and h.
  spec = Dbsa(rows="input")
  _, _, out, maps = after(spec, DECODER, EXAMPLE)
  shown = np.tril(np.ones((7, 7), bool)) & np.asarray(EXAMPLE.real_BS)[0]
  weight = np.asarray(jax.nn.softmax(np.where(shown, out[0, 0], -np.inf), -1))
  parse = np.exp(maps["log_parse_BQM"][0])
  np.testing.assert_allclose(parse[:5, :6], weight[1:6, 1:], atol=1e-6)
  assert not parse[5:].any() and not parse[:, 6].any()
  assert maps["parent_BQ"].tolist() == [CHAIN]


@pytest.mark.parametrize(
  "spec, site, columns",
  [
    # Rows of subwords look at the column of the one to be found.
    (Sisa(gold="always"), ENCODER, {0: 2, 1: 2, 2: 2, 3: 2, 4: 2}),
    (Dbsa(gold="training"), ENCODER, {0: 1, 1: 2, 2: 3, 3: 3, 4: 2}),
    # In a decoder only those on the left can be seen: of 3, 4.
    (Dbsa(gold="training"), DECODER, {3: 3, 4: 2}),
    # One row and one column later.
    (Dbsa(gold="training", rows="input"), DECODER, {4: 4, 5: 3}),
  ],
)
def test_gold_parents_get_all_the_weight(spec, site, columns):
  _, _, out, maps = after(spec, site, EXAMPLE.replace(train=True))
  _, _, expected, published = after(
    type(spec)(rows=spec.rows) if isinstance(spec, Dbsa) else type(spec)(),
    site,
    EXAMPLE,
  )
  weight = np.asarray(jax.nn.softmax(out[0, 0], -1))
  for row in range(7):
    if row in columns:
      assert weight[row].tolist() == np.eye(7)[columns[row]].tolist()
    else:
      np.testing.assert_array_equal(out[0, :, row], expected[0, :, row])
  # What is supervised is still the head's own.
  np.testing.assert_array_equal(
    maps["log_parse_BQM"], published["log_parse_BQM"]
  )
  _, _, evaluated, _ = after(spec, site, EXAMPLE)
  assert np.array_equal(evaluated, out if spec.gold == "always" else expected)


@pytest.mark.parametrize(
  "place, options, message",
  [
    ("encoder", {"rows": "input"}, r"encoder\.dbsa\.rows='input'"),
    ("decoder", {"gold": "always"}, r"decoder\.dbsa\.gold='always'"),
    ("decoder", {"heads": (2,)}, r"decoder\.dbsa\.heads: 2 is not one of"),
  ],
)
def test_rejects_invalid_options(place, options, message):
  with pytest.raises(InputError, match=message):
    check_part(place, "dbsa", options)
