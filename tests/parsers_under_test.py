"""Small parsers of each kind that are trained on gold trees."""

from __future__ import annotations

import functools
import gzip
import importlib.util
import json
import pathlib

import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers import PARSERS
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.storage import checksums

KINDS = tuple(PARSERS)


@functools.cache
def udpipe(data: pathlib.Path, language: str) -> UDPipe:
  """A real parser, which takes seconds to load."""
  path = data / "udpipe" / f"{language}.udpipe"
  return UDPipe(path, checksums.sha256_of(path))


def spec_of(kind: str, data: pathlib.Path, made_once):
  """The options of a real parser of a kind; a skip if it is not installed."""
  if kind == "udpipe":
    return PARSERS[kind](str(data / "udpipe" / "english.udpipe"))
  if kind == "spacy":
    make = functools.partial(spacy_pipeline, data=data)
    return PARSERS[kind](str(made_once("spacy_pipeline", make)))
  if not importlib.util.find_spec("stanza"):
    pytest.skip("Stanza is not installed: pip install -e '.[stanza]'")
  make = functools.partial(stanza_models, data=data)
  return PARSERS[kind](folder=str(made_once("stanza_models", make)))


def spacy_pipeline(
  folder: pathlib.Path, data: pathlib.Path, *, trees: int = 40
) -> None:
  """Trains a tagger and a parser on some gold trees, for seconds."""
  import spacy
  from spacy.tokens import Doc
  from spacy.training import Example

  nlp = spacy.blank("en")
  nlp.add_pipe("morphologizer")
  nlp.add_pipe("parser", config={"min_action_freq": 1})
  examples = []
  for block in gold(data, trees):
    words = list(block.form_W)
    columns = [line.split("\t") for line in block.line_W]
    doc = Doc(
      nlp.vocab,
      words=words,
      spaces=list(block.space_after_W),
      pos=[row[3] for row in columns],
      heads=list(block.head_W),
      deps=["ROOT" if r == "root" else r for r in block.relation_W],
    )
    plain = Doc(nlp.vocab, words=words, spaces=list(block.space_after_W))
    examples.append(Example(plain, doc))
  spacy.util.fix_random_seed(1)
  nlp.initialize(lambda: examples)
  for _ in range(4):
    nlp.update(examples)
  nlp.to_disk(folder)


def gold(data: pathlib.Path, count: int) -> list[conllu.Block]:
  """The first short trees of a treebank."""
  path = data / "ud" / "en_ewt-dev.conllu.gz"
  with gzip.open(path, "rt", encoding="utf-8") as file:
    blocks = conllu.blocks_of_text(file.read(), "gold")
  return [b for b in blocks if 5 <= len(b.form_W) <= 15][:count]


def stanza_models(folder: pathlib.Path, data: pathlib.Path) -> None:
  """Trains Stanza's models on some gold trees, a few updates each."""
  import torch
  from stanza.models import parser, tagger, tokenizer
  from stanza.utils.datasets import prepare_tokenizer_data

  torch.set_num_threads(1)
  folder.mkdir(parents=True)
  text, labels, trees, words = (
    str(folder / name) for name in ("a.txt", "a.label", "a.conllu", "mwt.json")
  )
  blocks = [b for b in gold(data, 200) if len(b.line_W) == _words_of(b)][:100]
  lines = "\n\n".join(block.text for block in blocks)
  pathlib.Path(text).write_text(f"{lines}\n")
  rows = ("\n".join(block.line_W) + "\n\n" for block in blocks)
  pathlib.Path(trees).write_text("".join(rows))
  prepare_tokenizer_data.main([text, trees, "-o", labels, "-m", words])
  shared = [
    "--lang",
    "en",
    "--shorthand",
    "en_toy",
    "--cpu",
    "--save_name",
    "toy.pt",
  ]
  files = {
    "txt_file": text,
    "label_file": labels,
    "dev_txt_file": text,
    "dev_label_file": labels,
    "dev_conll_gold": trees,
    "conll_file": str(folder / "x"),
    "mwt_json_file": words,
    "save_dir": str(folder / "en" / "tokenize"),
  }
  options = "--steps 150 --eval_steps 150 --no_use_mwt --hidden_dim 16"
  options += " --emb_dim 16 --batch_size 8"
  tokenizer.main([*_options(files), *shared, *options.split()])
  options = "--no_pretrain --no_char --max_steps 20 --eval_interval 20"
  options += " --batch_size 500 --hidden_dim 40 --deep_biaff_hidden_dim 40"
  for model, name in ((tagger, "pos"), (parser, "depparse")):
    files = {"train_file": trees, "eval_file": trees}
    files["save_dir"] = str(folder / "en" / name)
    model.main([*_options(files), *shared, *options.split()])
  known = {name: {"toy": {}} for name in ("tokenize", "pos", "depparse")}
  packages = {**dict.fromkeys(known, "toy"), "lemma": "identity"}
  resources = {"en": {**known, "packages": {"default": packages}}}
  (folder / "resources.json").write_text(json.dumps(resources))


def _options(values: dict[str, str]) -> list[str]:
  """Words of a command line."""
  return [word for k, v in values.items() for word in (f"--{k}", v)]


def _words_of(block: conllu.Block) -> int:
  """Number of words in a tree without multi-word tokens: its last id."""
  return int(block.line_W[-1].split("\t")[0])
