"""Validation of a real, tiny run: sums over batches, and what selects."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsyn import config as configs
from jaxsyn import train
from jaxsyn.data import manifest as manifests
from jaxsyn.data.records import Records
from jaxsyn.data.vocabulary import Vocabulary
from jaxsyn.decode.translator import Translator
from jaxsyn.errors import InputError
from jaxsyn.models.contract import forward
from jaxsyn.plan import resolve
from jaxsyn.scoring import selection
from jaxsyn.scoring.metrics import score
from jaxsyn.scoring.validation import Validator, read_text
from jaxsyn.training.mesh import Layout
from jaxsyn.translate import Session

pytestmark = pytest.mark.usefixtures("quick_compile_file")


def small(tiny, **changes):
  config = tiny("transformer")
  config.model.update(encoder_layers=1, width=16, feed_forward=16)
  config.train.update(changes)
  return config


@pytest.mark.parametrize("metric", ["ribes", "likelihood"])
def test_uneven_batches_are_as_good_as_single_sentences(tiny, prepared, metric):
  """24 sentences in rows of 8 devices and lengths of their own."""
  config = small(tiny, selection=metric, tokenizer="char")
  config.batch.tokens = 600  # a few sentences a batch
  config = configs.read(config)
  plan = resolve(config, manifests.read(prepared))
  vocabulary = Vocabulary(prepared / "vocabulary.model")
  validator = Validator(
    plan,
    Layout("jit", config.train.mesh),
    "validation",
    ("source_id", "target_id"),
    vocabulary,
  )
  sizes = [len(planned.ids) for planned in validator._batches]
  assert sum(sizes) == 24 and len(set(sizes)) > 1

  model = plan.recipe.model
  records = list(Records(prepared, "validation"))
  batches = [
    {
      "source_id_BS": jnp.asarray(example["source_id"])[None],
      "target_id_BT": jnp.asarray(example["target_id"])[None],
    }
    for example in records
  ]
  key = jax.random.key(3)
  params = model.init({"params": key}, batches[0], train=False, method=forward)
  params = params["params"]
  found = validator(params)

  longest = 1 + max(b["target_id_BT"].shape[1] for b in batches)
  log_p, count = 0.0, 0
  for batch in batches:
    # One shape to compile: what is appended is after all that is counted.
    size = batch["target_id_BT"].shape[1]
    batch["target_id_BT"] = jnp.pad(
      batch["target_id_BT"], ((0, 0), (0, longest - size))
    )
    size_S = batch["source_id_BS"].shape[1]
    batch["source_id_BS"] = jnp.pad(
      batch["source_id_BS"], ((0, 0), (0, 80 - size_S))
    )
    logits_BTV, _ = model.apply(
      {"params": params}, batch, train=False, method=forward
    )
    logits_TV = np.asarray(logits_BTV, np.float64)[0]
    for t, target in enumerate(np.asarray(batch["target_id_BT"])[0, :size]):
      log_p += logits_TV[t, target] - np.log(np.exp(logits_TV[t]).sum())
      count += 1
  assert found.values["likelihood"] == pytest.approx(log_p / count, rel=1e-5)
  assert found.values["perplexity"] == pytest.approx(
    math.exp(-log_p / count), rel=1e-5
  )
  if metric == "likelihood":
    assert found.rank == [found.values["likelihood"]]
    assert not {"bleu", "tokenizer"} & set(found.values)
    return
  translator = Translator(model, vocabulary, plan.config.decode)
  said = [best[0].text for best in translator(params, records)]
  meant = read_text(prepared, "validation", "target")
  expected = score(said, [meant], "ribes", "char").value
  assert found.values["ribes"] == expected
  assert found.rank == [expected, found.values["likelihood"]]
  assert found.values["tokenizer"] == "char"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("run")


def test_a_run_is_selected_by_what_was_asked(tiny, folder, capsys):
  """chrF on a real run: the log, the best checkpoint, and who opens it."""
  config = small(tiny, selection="chrf", steps=30, evaluate_every=10)
  outcome = train.run(config, folder)
  assert "the best checkpoint is that of chrF" in capsys.readouterr().out
  lines = (folder / "log.jsonl").read_text().splitlines()
  seen = [r for r in map(json.loads, lines) if r["kind"] == "validation"]
  assert [r["step"] for r in seen] == [10, 20, 30]
  best = max(seen, key=lambda r: (r["chrf"], r["likelihood"]))
  assert outcome.progress.best_step == best["step"]
  assert outcome.progress.best_score == best["chrf"] == seen[-1]["best_chrf"]
  for record in seen:
    assert "bleu" not in record and record["perplexity"] == pytest.approx(
      math.exp(-record["likelihood"])
    )

  session = Session(folder, beam=1)
  assert session.chosen == (
    f"the best checkpoint by validation chrF: {best['chrf']:.2f} at step "
    f"{best['step']}"
  )
  directory = session.run.config.data.directory
  said = [
    t[0].text for t in session(read_text(directory, "validation", "source"))
  ]
  meant = read_text(directory, "validation", "target")
  assert score(said, [meant], "chrf").value == pytest.approx(best["chrf"])
  assert session.run.config.train.tokenizer == "13a"  # of the language qaa

  # Another way to choose would not compare with the best so far.
  with pytest.raises(
    InputError, match="selection was 'chrf' and is now 'bleu'"
  ):
    train.run(small(tiny, selection="bleu", steps=40), folder)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"tokenizer": "13b"}, "no tokenizer '13b'. Did you mean '13a'"),
    ({"selection": "blue"}, r"config\.train\.selection must be one of 'bleu'"),
  ],
)
def test_what_cannot_select_is_refused_before_there_is_a_run(
  tiny, tmp_path, changes, message
):
  with pytest.raises(InputError, match=message):
    train.run(small(tiny, **changes), tmp_path / "run")
  assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("language", ["ja", "zh-CN", "th"])
def test_raw_text_ranks_by_how_much_of_it_is_right(tiny, language):
  """As validation scores it, with what fits the language."""
  meant = {
    "ja": "私は毎朝パンを食べます。",
    "zh-CN": "他昨天在图书馆借了三本书。",
    "th": "ฉันไปโรงเรียนทุกวันกับเพื่อน",
  }[language]
  config = small(tiny)
  config.data.target_language = language
  settled = selection.settled(configs.read(config)).train
  metric = selection.Metric(settled, [meant, meant])
  right, half, none = (
    metric(said).compared
    for said in ([meant] * 2, [meant, "x"], ["x y z", "w"])
  )
  assert right == pytest.approx(100) and 0 == none < half < right
