"""A parser of each kind that is real and small, and what it must agree with."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import importlib.util
import json
import pathlib
import sys
import threading
import unicodedata
import urllib.parse

import pytest
from ufal import udpipe

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers import PARSERS

KINDS = tuple(PARSERS)
MODEL = "english-toy-ud-2.15-241121"
SHORT = ("english", "en", "english-toy", MODEL)
LONGEST = 60  # words of a line that the service takes

PROGRAM = """
import sys, time
from ufal import udpipe
model = udpipe.Model.load(sys.argv[1])
tokenizer = model.newTokenizer(model.TOKENIZER_PRESEGMENTED)
output = udpipe.OutputFormat.newConlluOutputFormat()
print("ready, ümlaut", file=sys.stderr, flush=True)
sentence, error = udpipe.Sentence(), udpipe.ProcessingError()
for line in sys.stdin.buffer:
  tokenizer.setText(line.decode())
  while tokenizer.nextSentence(sentence, error):
    model.tag(sentence, model.DEFAULT)
    model.parse(sentence, model.DEFAULT)
    sys.stdout.buffer.write(output.writeSentence(sentence).encode())
  sys.stdout.buffer.flush()
"""


class _Handler(http.server.BaseHTTPRequestHandler):
  """UDPipe 2's protocol, whose words and trees are UDPipe 1's."""

  protocol_version = "HTTP/1.1"

  def do_GET(self):
    if urllib.parse.urlparse(self.path).path != "/api/models":
      return self._answer("no such method", 404)
    models = {MODEL: ["tokenizer", "tagger", "parser"]}
    return self._answer({"models": models, "default_model": "english"})

  def do_POST(self):
    body = self.rfile.read(int(self.headers["Content-Length"])).decode()
    request = dict(urllib.parse.parse_qsl(body, keep_blank_values=True))
    self.server.asked.append(request)
    if self.server.faults:
      return self.server.faults.pop(0)(self)
    if request["model"] not in SHORT:
      return self._answer(
        f"The model '{request['model']}' does not exist.", 400
      )
    assert (
      request["tokenizer"] == "presegmented" and request["output"] == "conllu"
    )
    blocks = self._parsed(unicodedata.normalize("NFC", request["data"]))
    if blocks is None:
      return self._answer("A sentence of too many words was found.", 400)
    head = (
      "# generator = UDPipe 2, https://lindat.mff.cuni.cz/services/udpipe\n"
      f"# udpipe_model = {MODEL}\n# udpipe_model_licence = CC BY-NC-SA\n"
    )
    result = head + "".join(blocks)
    document = {"model": MODEL, "acknowledgements": [""], "result": result}
    return self._answer(document)

  def _parsed(self, text):
    model = self.server.model
    tokenizer = model.newTokenizer(model.TOKENIZER_PRESEGMENTED)
    output = udpipe.OutputFormat.newConlluOutputFormat()
    tokenizer.setText(text)
    sentence, error = udpipe.Sentence(), udpipe.ProcessingError()
    blocks = []
    with self.server.lock:
      while tokenizer.nextSentence(sentence, error):
        if len(sentence.words) > LONGEST + 1:
          return None
        model.tag(sentence, model.DEFAULT)
        model.parse(sentence, model.DEFAULT)
        blocks.append(output.writeSentence(sentence))
    return blocks

  def _answer(self, document, status=200):
    plain = isinstance(document, str)
    body = (document if plain else json.dumps(document)).encode()
    self.send_response(status)
    self.send_header(
      "Content-Type", "text/plain" if plain else "application/json"
    )
    self.send_header("Content-Length", str(len(body)))
    self.end_headers()
    self.wfile.write(body)

  def log_message(self, *_):
    pass


@contextlib.contextmanager
def service(model: pathlib.Path):
  """A server: `url`, `asked` for, and `faults`, answers that come first."""
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
    server.model = udpipe.Model.load(str(model))
    server.asked, server.faults, server.lock = [], [], threading.Lock()
    server.url = f"http://127.0.0.1:{server.server_port}/api"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
      yield server
    finally:
      server.shutdown()
      thread.join()


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


def gold(data: pathlib.Path, index: int) -> list[conllu.Block]:
  """The first short trees of a treebank."""
  path = data / "ud" / "en_ewt-dev.conllu.gz"
  with gzip.open(path, "rt", encoding="utf-8") as file:
    blocks = conllu.blocks_of_text(file.read(), "gold")
  return [b for b in blocks if 5 <= len(b.form_W) <= 15][:index]


def program(folder: pathlib.Path, text: str = PROGRAM) -> pathlib.Path:
  """The script of a parser that is a command."""
  path = folder / "parse.py"
  path.write_text(text)
  return path


def command(script: pathlib.Path, *words: object) -> str:
  """A command line that runs it with this Python."""
  return " ".join(map(str, (sys.executable, script, *words)))


def needs(kind: str) -> None:
  """Skips what is not installed here."""
  if kind == "stanza" and not importlib.util.find_spec("stanza"):
    pytest.skip("Stanza is not installed: pip install -e '.[stanza]'")


def stanza_models(folder: pathlib.Path, data: pathlib.Path) -> None:
  """Trains Stanza's models on some gold trees, a few updates each."""
  import torch
  from stanza.models import parser, tagger, tokenizer
  from stanza.utils.datasets import prepare_tokenizer_data

  torch.set_num_threads(1)
  folder.mkdir(parents=True)
  text, labels, trees = (folder / n for n in ("a.txt", "a.label", "a.conllu"))
  blocks = [b for b in gold(data, 200) if len(b.line_W) == _words_of(b)][:100]
  text.write_text("\n\n".join(block.text for block in blocks) + "\n")
  trees.write_text(
    "".join("\n".join(block.line_W) + "\n\n" for block in blocks)
  )
  prepare_tokenizer_data.main(
    [str(text), str(trees), "-o", str(labels), "-m", str(folder / "mwt.json")]
  )
  expected = folder / "en"
  shared = ["--lang", "en", "--shorthand", "en_toy", "--cpu"]
  tokenizer.main(
    [
      *("--txt_file", str(text), "--label_file", str(labels)),
      *("--dev_txt_file", str(text), "--dev_label_file", str(labels)),
      *("--dev_conll_gold", str(trees), "--conll_file", str(folder / "x")),
      *("--mwt_json_file", str(folder / "mwt.json"), *shared),
      *("--steps", "150", "--eval_steps", "150", "--no_use_mwt"),
      *("--hidden_dim", "16", "--emb_dim", "16", "--batch_size", "8"),
      *("--save_dir", str(expected / "tokenize"), "--save_name", "toy.pt"),
    ]
  )
  for model, name in ((tagger, "pos"), (parser, "depparse")):
    model.main(
      [
        *("--train_file", str(trees), "--eval_file", str(trees), *shared),
        *("--no_pretrain", "--no_char", "--max_steps", "20"),
        *("--eval_interval", "20", "--batch_size", "500"),
        *("--hidden_dim", "40", "--deep_biaff_hidden_dim", "40"),
        *("--save_dir", str(expected / name), "--save_name", "toy.pt"),
      ]
    )
  packages = {
    "tokenize": "toy",
    "pos": "toy",
    "lemma": "identity",
    "depparse": "toy",
  }
  known = {name: {"toy": {}} for name in ("tokenize", "pos", "depparse")}
  resources = {"en": {**known, "packages": {"default": packages}}}
  (folder / "resources.json").write_text(json.dumps(resources))


def _words_of(block: conllu.Block) -> int:
  """Of a tree without multi-word tokens: as many as its last number says."""
  return int(block.line_W[-1].split("\t")[0])
