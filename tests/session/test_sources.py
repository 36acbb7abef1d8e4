"""Reading of source sentences, in this process and in worker processes."""

import copy
import os
import signal

import numpy as np
import pytest
from test_workers import process_facts

from jaxsyn.config import read_config
from jaxsyn.data.schema import EOS
from jaxsyn.data.sentence.conllu import unparsed
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.decode.sources import FEW, SessionReader
from jaxsyn.errors import InputError
from jaxsyn.session import workdir
from jaxsyn.session.member import source_reader
from jaxsyn.utils.workers import Workers

TEXT = "the duck that a farmer saw will arrive and a cow sleeps"
LINES = [
  "",
  "   ",
  "nul \0 here",
  "?",
  "The duck \u0301 ½ .",
  "a " * 600,
  *(" ".join(TEXT.split()[i % 9 : i % 9 + i % 7]) for i in range(FEW)),
]


@pytest.fixture(scope="module")
def reader(prepared, tmp_path_factory):
  """The reader of an untrained run on the small corpus."""
  from jaxsyn.configs import quickstart as config_file

  config = config_file.get_config("pascal")
  config.data.directory = str(prepared)
  folder = tmp_path_factory.mktemp("sources") / "run"
  run = workdir.create(folder, read_config(config))
  return source_reader(run, longest=512)


@pytest.fixture
def parallel(reader):
  parallel = SessionReader([reader])
  yield parallel
  parallel.close()


def assert_equal(example, expected):
  assert example.keys() == expected.keys()
  for name, array in expected.items():
    assert example[name].dtype == array.dtype
    np.testing.assert_array_equal(example[name], array)


def wait(pending):
  return [one for part in pending for one in part.result()]


def test_worker_processes_read_the_same_arrays(reader, parallel):
  inputs = [*LINES, reader.parser(LINES[-1])]
  expected = parallel.read_all(inputs)
  wait(parallel.read_async(LINES[:FEW]))  # few lines are read here
  assert parallel._workers is None
  # The second block is started while the first is being read.
  first = parallel.read_async(inputs)
  second = parallel.read_async(inputs[::-1])
  for future, wanted in ((first, expected), (second, expected[::-1])):
    read = wait(future)
    assert [cut for _, cut in read] == [cut for _, cut in wanted]
    for ((example,), _), ((other,), _) in zip(read, wanted, strict=True):
      assert_equal(example, other)
  assert sum(cut for _, cut in expected) == 1
  os.killpg(parallel._workers._process.pid, signal.SIGKILL)
  with pytest.raises(InputError, match=r"a parser process died.*--conllu"):
    wait(parallel.read_async(LINES))
  parsed = [reader.parser("?")] * (FEW + 1)  # parses need no processes
  assert len(wait(parallel.read_async(parsed))) == FEW + 1


def test_cuts_a_line_to_the_longest_length(reader):
  for words, is_cut in ((511, False), (512, True), (900, True)):
    fitted = reader.fit(" ".join("a" * words))
    assert fitted.is_cut is is_cut and len(fitted.read.split()) == 511
    assert len(reader.example(fitted.read)["source_id"]) == 512


def test_runs_with_the_same_parser_parse_once(reader, monkeypatch):
  calls, texts = [], UDPipe._texts

  def record(parser, lines):
    calls.append(lines)
    return texts(parser, lines)

  monkeypatch.setattr(UDPipe, "_texts", record)
  inputs = [*LINES[:5], *LINES[6:30], LINES[8], reader.parser(LINES[-1])]
  expected = SessionReader([reader]).read_all(inputs)
  calls.clear()
  ensemble = SessionReader([reader, copy.copy(reader)])
  for (examples, cut), ((other,), _) in zip(
    ensemble.read_all(inputs), expected, strict=True
  ):
    assert not cut
    for example in examples:
      assert_equal(example, other)
  (lines,) = calls  # all together, for both runs
  assert len(set(lines)) == len(lines) > 5


def test_worker_processes_load_no_jax(parallel):
  with Workers(parallel.opened, 1, died="") as workers:
    pid, loaded = workers.submit(process_facts).result()
  assert pid != os.getpid() and "ufal" in loaded
  assert not loaded & {"jax", "flax", "orbax", "tensorflow"}


def test_rejects_another_parser(reader, tmp_path, monkeypatch):
  other = tmp_path / "other.udpipe"
  other.write_bytes(reader.parser.path.read_bytes() + b"\0")
  monkeypatch.setattr(reader, "_spec", UDPipeSpec(str(other)))
  monkeypatch.setattr(reader, "_parser", None)
  parallel = SessionReader([reader])
  for lines in (LINES, LINES[:1]):
    with pytest.raises(InputError, match=r"is not the source parser .*SHA-256"):
      wait(parallel.read_async(lines))
  parallel.close()
  monkeypatch.setattr(reader, "_spec", None)
  with pytest.raises(InputError, match="has no parser"):
    wait(parallel.read_async(LINES[:1]))
  # The sentence of a skipped line needs no parser.
  (((example,), _),) = wait(parallel.read_async([unparsed("")]))
  assert example["source_id"].tolist() == [EOS]
