"""`jaxsyn.inspect` as a function and as a command."""

import dataclasses
import json
from unittest import mock

import jax
import matplotlib.image
import numpy as np
import pytest
from command_flags import parsed

from jaxsyn import inspect
from jaxsyn.config import read_config
from jaxsyn.configs import quickstart, systems
from jaxsyn.data.loader.collate import pad
from jaxsyn.data.schema import EOS
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.inspection import pictures
from jaxsyn.inspection.inspector import Inspector, _found_heads
from jaxsyn.inspection.run import write
from jaxsyn.inspection.sentence import Sentence
from jaxsyn.models.contract import forward
from jaxsyn.session import Session, workdir
from jaxsyn.syntax.maps import COLLECTION, Address, Maps
from jaxsyn.training.checkpoint_reader import Parameters
from jaxsyn.training.step import first_state

LONG = (
  "Every tiger with a scar that visited our drum quickly helped the ducks ."
)
LINES = ["The duck arrived .", LONG, "", "  ", "duck"]


def initial_parameters(run, checkpoint):
  """Stands in for `parameters.read`: quick, where the numbers do not matter."""
  batch = pad([], run.source_features, subwords=4, words=4, rows=1)
  batch["target_id_BT"] = np.zeros((1, 4), np.int32)
  state = jax.jit(lambda: first_state(run.plan.recipe, batch, 0))()
  return Parameters(state.params, (0,))


def open_untrained(folder, **options):
  with mock.patch("jaxsyn.session.parameters.read", initial_parameters):
    return Session(folder, **options)


@pytest.fixture(scope="module")
def untrained(prepared, tmp_path_factory):
  """Returns a function from a system to a session of an untrained run."""

  def make(system):
    config = quickstart.get_config("")
    config.model.update(width=32)
    config.model.transformer.update(
      encoder_layers=2, decoder_layers=1, feed_forward=32, heads=4
    )
    config.model.gru.hidden = 16
    systems.apply(config, system)
    config.data.directory = str(prepared)
    config.decode.update(beam=1, max_length_factor=1.0, max_length_offset=2)
    folder = tmp_path_factory.mktemp("run")
    workdir.create(folder, read_config(config))
    return open_untrained(folder)

  return make


@pytest.fixture(scope="module")
def session(untrained):
  return untrained("pascal")


def written(seen, folder, index=1, **options):
  """Writes the files of a sentence; returns their names."""
  folder.mkdir()
  write(seen, folder, index, **options)
  for path in folder.glob("*.png"):
    assert path.stat().st_size > 1000
  return {path.name.removeprefix("sentence_0001.") for path in folder.iterdir()}


def test_attention_and_weightings_of_a_sentence(session):
  seen, _ = inspect.attention_of(session, [LINES[0], LONG])
  source = seen.source
  assert source.words == ("The", "duck", "arrived", ".")
  text = "".join(source.subwords[:-1]).replace("▁", " ")
  assert tuple(text.split()) == source.words
  assert source.parsed and source.tree == "parsed"
  assert source.head_of_units() == source.head_W == source.given_head_W
  assert seen.translation == session([LINES[0]])[0][0].text
  expected = [("encoder", 0), ("encoder", 1), ("decoder", 0), ("cross", 0)]
  assert [(m.place, m.layer) for m in seen.attention] == expected
  words = (*source.words, "</s>")
  for m in seen.attention:
    assert m.value_HQM.shape == (4, len(m.rows), len(m.columns))
    np.testing.assert_allclose(m.value_HQM.sum(2), 1.0, atol=1e-5)
    assert m.heads == (0, 1, 2, 3)
    on = m.place == "encoder" and m.layer == 0
    assert m.parts == (*[("parent_scaled",) if on else ()] * 2, (), ())
  assert seen.find("encoder", 1).rows == words
  cross, decoder = seen.find("cross", 0), seen.find("decoder", 0)
  assert cross.columns == words
  assert "".join(cross.rows) == seen.translation.replace(" ", "") + "</s>"
  assert decoder.columns == ("<s>", *cross.rows[:-1])
  # The row of word w reads BOS and the words up to w.
  above = np.triu(np.ones(decoder.value_HQM.shape[1:], bool), 2)
  assert (decoder.value_HQM[:, above] == 0).all()
  (weighting,) = seen.weightings
  assert (weighting.part, weighting.kind) == ("parent_scaled", "weighting")
  assert (weighting.layer, weighting.heads) == (0, (0, 1))
  assert weighting.rows == weighting.columns == source.subwords
  # Where the parent is one subword, its column has the peak, 1 / √2π.
  weight_QM = seen.find("encoder", 0, "parent_scaled").value_HQM[0]
  mid_S = source.example["source_parent_mid"]
  for row, mid in enumerate(mid_S):
    if mid == int(mid):
      assert weight_QM[row, int(mid)] == pytest.approx(0.39894, abs=1e-5)
  with pytest.raises(KeyError, match="tree_scaled"):
    seen.find("encoder", 0, "tree_scaled")


def test_maps_do_not_depend_on_padding_or_the_batch(session):
  """Compares with the model on one sentence without padding."""
  source = Inspector(session).read(LONG)
  ids = [5, 9, 7, EOS]
  reads = "source_id", "source_word", "source_parsed", "source_parent_mid"
  batch = {
    f"{name}_B{'S' if np.ndim(value) else ''}": np.asarray(value)[None]
    for name, value in source.example.items()
    if name in reads
  }
  batch["target_id_BT"] = np.array([ids], np.int32)
  model = session.plan.recipe.model
  options = {"train": False, "method": forward, "mutable": [COLLECTION]}
  apply = jax.jit(lambda params: model.apply(params, batch, **options))
  maps = Maps.of(apply({"params": session.params[0]})[1])
  reader = Inspector(session).maps
  other = Inspector(session).read(LINES[0])
  # Its long "translation" puts the other sentence into the first row.
  seen = dict(
    reader(
      session.params[0],
      [other.example, source.example],
      [[4] * 60 + [EOS], ids],
    )
  )[1]
  single = dict(reader(session.params[0], [source.example]))[0]
  assert {p.place for p in single} == {"encoder"}
  for p in [*seen, *single]:
    result_BHQM = maps.at(Address(p.place, p.layer, p.part, f"{p.kind}_BHQM"))
    expected = result_BHQM[0][np.array(p.heads)]
    np.testing.assert_allclose(p.value_HQM, expected, atol=1e-5)


def test_the_command_writes_pictures_json_and_the_probe(
  runs, tmp_path, capsys, monkeypatch
):
  monkeypatch.setattr(inspect, "set_up_jax", lambda: None)
  source, output = tmp_path / "in.txt", tmp_path / "out"
  source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
  folders = ["--output", output, "--workdir", runs["pascal"]]
  words = [*folders, "--input", source, "--limit=2", "--layers=0"]
  with parsed(inspect, *words) as values:
    inspect._main(values)
  printed, errors = capsys.readouterr()
  assert "2 sentences drawn, 2 in the probe" in printed
  assert "2 empty lines were skipped" in errors
  assert "layer 0 head 3" in printed and "parent_scaled" in printed
  maps = ["parent_scaled.encoder_0", "attention.encoder_0"]
  maps += ["attention.decoder_0", "attention.cross_0"]
  names = {path.name for path in output.iterdir()}
  expected = {"probe.json", "index.html"}
  for prefix in ("sentence_0001", "sentence_0002"):
    expected |= {f"{prefix}.json", f"{prefix}.tree.svg"}
    expected |= {f"{prefix}.{name}.png" for name in maps}
  assert names == expected
  for path in output.glob("*.png"):
    image = matplotlib.image.imread(path)
    assert min(image.shape[:2]) > 60 and image[..., :3].std() > 0.02, path
  page = (output / "index.html").read_text()
  assert all(f'"{name}"' in page for name in names - {"index.html"})
  assert f"2. {LONG} → " in page

  document = json.loads((output / "sentence_0002.json").read_text())
  assert document["text"] == LONG and document["number"] == 2
  for name in ("words", "heads", "relations"):
    assert len(document[name]) == 14
  assert len(document["word_of_subword"]) == len(document["subwords"])
  assert document["word_of_subword"][-1] == -1
  assert len(document["attention"]) == 3 * 4  # encoder, decoder, cross; heads
  for entry in document["attention"]:
    weight_QM = np.array(entry["weights"])
    assert weight_QM.shape == (len(entry["rows"]), len(entry["columns"]))
    np.testing.assert_allclose(weight_QM.sum(1), 1.0, atol=1e-4)
  (weighting,) = document["weightings"]
  assert weighting["heads"] == [0, 1]

  probe = json.loads((output / "probe.json").read_text())
  assert probe["skipped"] == {"empty": 2, "too_long": 0, "no_tree": 0}
  assert probe["checkpoint"].startswith("the best checkpoint by validation")
  assert f"parameters: {probe['checkpoint']}" in printed
  assert probe["words"] == 4 + 14  # the line of one word has no other word
  parts = [head["parts"] for head in probe["heads"]]
  assert parts == [["parent_scaled"]] * 2 + [[]] * 2


def test_the_probe_depends_on_trees_and_not_on_figures(session, tmp_path):
  lines = [LONG, LINES[0]]
  none = inspect.run(session, lines, tmp_path / "none", limit=0)
  all_ = inspect.run(session, lines, tmp_path / "all", layers=[1])
  assert none.probe == all_.probe
  assert (none.pictures, all_.pictures) == (0, 2)
  assert [p.name for p in (tmp_path / "none").iterdir()] == ["probe.json"]
  # Lines without a tree are drawn but not probed.
  parse = dataclasses.replace(session.sources.parser(LONG), parsed=False)
  report = inspect.run(
    session, [LINES[0], parse], tmp_path / "unparsed", layers=[]
  )
  assert (report.pictures, report.probe["skipped"]["no_tree"]) == (2, 1)
  assert report.probe["sentences"] == 1


def test_draws_the_tree_of_a_control(untrained, tmp_path):
  session = untrained("pascal_linear_tree")
  source = Inspector(session).read(LONG)
  assert source.tree == "linear"
  assert source.given_head_W == (0, *range(13))  # the previous word
  assert (
    source.head_W == session.sources.parser(LONG).head_W != source.given_head_W
  )
  names = written(Sentence(source, "", (), ()), tmp_path / "out")
  assert names == {"json", "tree.svg", "tree_read.svg"}


def test_draws_parents_of_a_supervised_head(untrained, tmp_path):
  session = untrained("dbsa")
  draw = np.random.default_rng(0).normal  # from zeros nothing would be found
  session.params = jax.tree.map(
    lambda x: x + draw(0, 2, x.shape), session.params
  )
  (seen,) = inspect.attention_of(session, [LONG])
  # Words of one subword or more; each is asked at its last one.
  word_S = [seen.source.units.words[unit] for unit in seen.source.units.unit_S]
  parse = seen.find("decoder", 0, "dbsa")
  assert parse.columns == parse.rows  # and not what the states read
  parse = seen.find("encoder", 0, "dbsa")
  assert parse.kind == "parse" and parse.heads == (0,)
  np.testing.assert_allclose(parse.value_HQM.sum(2), 1.0, atol=1e-5)
  for word, result in enumerate(seen.found_head_W):
    last = len(word_S) - 1 - word_S[::-1].index(word)
    best = word_S[int(parse.value_HQM[0, last].argmax())]
    assert result == (word if best < 0 else best)
  assert len(set(seen.found_head_W)) > 1
  # A word whose best parent is EOS is its own parent, like a root.
  end_HQM = np.zeros_like(parse.value_HQM)
  end_HQM[..., -1] = 1.0
  to_end = dataclasses.replace(parse, value_HQM=end_HQM)
  assert _found_heads(seen.source, [to_end]) == tuple(range(14))
  folder = tmp_path / "out"
  assert "tree_found.svg" in written(seen, folder, layers=[1])
  document = json.loads((folder / "sentence_0001.json").read_text())
  assert document["heads_found_by_the_system"] == [*seen.found_head_W]


def test_shows_vectors_added_to_embeddings(untrained, tmp_path):
  session = untrained("tree_position")
  (seen,) = inspect.attention_of(session, [LONG])
  alike = seen.find("encoder", -1, "tree_position")
  assert (alike.kind, alike.heads) == ("alike", (0, 1, 2, 3))
  assert alike.is_one
  assert alike.rows == alike.columns == seen.source.subwords
  # Each word is like itself, but for the root and EOS, which have none.
  roots = {w for w, head in enumerate(seen.source.head_W) if w == head}
  words = [seen.source.units.words[unit] for unit in seen.source.units.unit_S]
  expected = [float(word >= 0 and word not in roots) for word in words]
  result = np.diagonal(alike.value_HQM[0])
  np.testing.assert_allclose(result, expected, atol=1e-5)
  name = "tree_position.alike.encoder_embeddings.png"
  assert name in written(seen, tmp_path / "out")
  assert pictures.title(alike) == ("tree_position, alike: encoder, embeddings")


def test_shows_both_contexts_of_a_recurrent_decoder(untrained, tmp_path):
  session = untrained("gru_double_syntax")
  (seen,) = inspect.attention_of(session, [LONG])
  assert {(m.place, m.heads, m.parts) for m in seen.attention} == {
    ("cross", (0,), ((name,),)) for name in ("global", "syntax")
  }
  assert not seen.weightings
  complete = seen.find("cross", 0, "global")
  near = seen.find("cross", 0, "syntax")
  for result in (complete, near):
    np.testing.assert_allclose(result.value_HQM.sum(2), 1.0, atol=1e-5)
    assert result.columns == seen.source.units.labels
  assert (complete.value_HQM > 0).all() and not near.value_HQM.all()
  assert written(seen, tmp_path / "out") == {
    "json",
    "tree.svg",
    "attention.global.cross_0.png",
    "attention.syntax.cross_0.png",
  }


def test_a_system_without_trees_with_and_without_a_parser(untrained, tmp_path):
  session = untrained("transformer")
  folder = session.run.workdir
  report = inspect.run(session, [LINES[0]], limit=0)
  assert report.output == folder / "inspect"
  assert report.probe["tree_read_by_the_system"] == "none"
  assert report.probe["possible"]["parent"] == 3

  manifest = manifests.read(folder)
  parser = tmp_path / "given.udpipe"
  (folder / manifest["parser"]["source"]["file"]).rename(parser)
  manifest["parser"], manifest["sides"] = {"source": None}, []
  manifest["annotations"], manifest["labels"] = [], {}
  manifests.write(folder, manifest)
  session = open_untrained(folder)
  with pytest.raises(InputError, match=r"no parser: .*--conllu.*--parser"):
    inspect.run(session, [LINES[0]], limit=0)
  named = open_untrained(folder, parser=str(parser))
  assert inspect.run(named, [LINES[0]], limit=0).probe == report.probe
  parse = named.sources.parser(LINES[0])  # as it would come from CoNLL-U
  assert inspect.run(session, [parse], limit=0).probe == report.probe


def test_rejects_invalid_input(session, tmp_path):
  (tmp_path / "file").write_text("")
  short = open_untrained(session.run.workdir, longest=5)
  for opened, lines, options, message in (
    (session, [LONG], {"layers": [2]}, "no layer 2; they count from 0 to 1"),
    (session, ["", " \u200b"], {}, r"no sentence to inspect \(2 empty"),
    (session, [LONG], {"output": tmp_path / "file"}, "file is a file; name a"),
    (short, [LONG], {}, "0 empty lines, 1 too long"),
  ):
    with pytest.raises(InputError, match=message):
      inspect.run(opened, lines, **{"output": tmp_path} | options)
  for opened, lines, message in (
    (session, [LONG, ""], "sentence 2 has no words"),
    (short, [LONG], "subwords are too many"),
  ):
    with pytest.raises(InputError, match=message):
      inspect.attention_of(opened, lines)


@pytest.mark.parametrize(
  ("words", "message"),
  [
    ((), "--workdir is missing"),
    (("--workdir=x",), "--input is missing"),
    (("--workdir=x", "--input=y"), "x is not the folder of a run"),
    (("--workdir=x", "--input=y", "--layers=a"), "--layers=a: numbers"),
  ],
)
def test_names_missing_and_invalid_flags(words, message):
  with (
    parsed(inspect, *words) as values,
    pytest.raises(InputError, match=message),
  ):
    inspect._main(values)
