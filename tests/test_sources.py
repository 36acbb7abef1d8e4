"""Sources read by processes: the same arrays, in order, and what goes wrong."""

import copy
import itertools
import os
import signal

import numpy as np
import pytest
from test_workers import process_facts

from jaxsyn import plan
from jaxsyn.config import read_config
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.errors import InputError
from jaxsyn.session import sources, workdir
from jaxsyn.session.member import source_reader
from jaxsyn.session.sources import FEW, EnsembleReader, ParallelReader
from jaxsyn.workers import Workers

WORDS = [
  "the",
  "duck",
  "that",
  "a",
  "farmer",
  "saw",
  "will",
  "arrive",
  "and",
  "a",
  "cow",
  "sleeps",
]
LINES = [
  *["", "   ", "nul \0 here", "?", "The duck \u0301 ½ .", "a " * 600],
  *(" ".join(WORDS[i % 9 : i % 9 + i % 7]) for i in range(FEW)),
]


@pytest.fixture(scope="module")
def reader(prepared, tmp_path_factory):
  """Of a run of the small corpus, that was not trained."""
  from jaxsyn.configs import quickstart as config_file

  config = config_file.get_config("pascal")
  config.data.directory = str(prepared)
  config = read_config(config)
  run = workdir.create(tmp_path_factory.mktemp("sources") / "run", config)
  return source_reader(run, plan.resolve(config, run.manifest), longest=512)


@pytest.fixture
def parallel(reader):
  parallel = ParallelReader(reader)
  yield parallel
  parallel.close()


def test_worker_processes_read_the_same_arrays(reader, parallel):
  parse = reader.parse(LINES[-1])
  inputs = [*LINES, parse]
  expected = reader.read_all(inputs)
  # Two blocks are begun, the second while the first is being read.
  first, second = parallel.begin(inputs), parallel.begin(inputs[::-1])
  for read, wanted in ((first(), expected), (second(), expected[::-1])):
    assert [cut for _, cut in read] == [cut for _, cut in wanted]
    for (example, _), (other, _) in zip(read, wanted, strict=True):
      assert example.keys() == other.keys()
      for name in example:
        assert example[name].dtype == other[name].dtype
        np.testing.assert_array_equal(example[name], other[name])
  assert sum(cut for _, cut in expected) == 1


def test_few_lines_are_read_in_this_process(reader, parallel):
  reader.parse("?")
  parallel.begin(LINES[:FEW])()
  parallel.begin([reader.parse("?")] * (FEW + 1))()  # parsed beforehand
  assert parallel._workers is None


def test_runs_with_the_same_parser_parse_once(reader, monkeypatch):
  """Checks that all lines are parsed together, once for several runs."""
  requests, texts = [], UDPipe._texts

  def noted(parser, lines):
    requests.extend([lines] if lines else [])
    return texts(parser, lines)

  monkeypatch.setattr(UDPipe, "_texts", noted)
  inputs = [*LINES[:5], *LINES[6:30], LINES[8], reader.parse(LINES[-1])]
  expected = reader.read_all(inputs)
  requests.clear()
  ensemble = EnsembleReader([reader, copy.copy(reader)])
  for (examples, cut), (due, _) in zip(
    ensemble.read_all(inputs), expected, strict=True
  ):
    assert not cut
    for example, (name, array) in itertools.product(examples, due.items()):
      np.testing.assert_array_equal(example[name], array)
  (lines,) = requests
  assert len(set(lines)) == len(lines) > 5


def test_processes_load_no_jax(reader):
  with Workers(reader.opened, 1, died="") as workers:
    pid, loaded = workers.submit(process_facts).result()
  assert pid != os.getpid() and "ufal" in loaded
  assert not loaded & {"jax", "flax", "orbax", "tensorflow"}


def test_reports_a_killed_parser(parallel):
  wait = parallel.begin(LINES)
  os.killpg(parallel._workers._process.pid, signal.SIGKILL)
  with pytest.raises(InputError, match=r"a parser process died.*--conllu"):
    wait()


def test_rejects_another_parser(reader, tmp_path, monkeypatch):
  other = tmp_path / "other.udpipe"
  other.write_bytes(reader.parser.path.read_bytes() + b"\0")
  monkeypatch.setattr(reader, "_spec", UDPipeSpec(str(other)))
  monkeypatch.setattr(reader, "_parser", None)
  parallel = ParallelReader(reader)
  for lines in (LINES, LINES[:1]):
    with pytest.raises(InputError, match=r"is not the source parser .*SHA-256"):
      parallel.begin(lines)()
  monkeypatch.setattr(reader, "_spec", None)
  parallel.close()
  with pytest.raises(InputError, match="has no parser"):
    parallel.begin(LINES)()
  parallel.close()


def test_starts_one_process_per_core(monkeypatch, parallel):
  monkeypatch.setattr(sources, "cores", lambda: 1)
  parallel.begin(LINES)()
  assert len(parallel._workers._ours) == 1
