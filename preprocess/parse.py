"""Trees for the lines of a split: by UDPipe, or from CoNLL-U files.

`preprocess.clean` comes before; `preprocess.build` reads the CoNLL-U that is
written here back, against the text, and makes examples of it. UDPipe is slow
(some 300 sentences a second and core), so lines are parsed in several
processes, chunk by chunk, and each chunk is a file under the hash of its lines
and parser: an interrupted run goes on where it was, and a changed line costs
one chunk.
"""

from __future__ import annotations

import concurrent.futures
import functools
import gzip
import itertools
import pathlib
import re
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence

from tqdm import tqdm

from jaxsyn import files
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parser import LONGEST_LINE, UDPipe
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.workers import Workers, cores
from preprocess.split import RawSplit

_CUT = 128  # a chunk ends where the hash of its line is 0 modulo this ...
_LONGEST = 512  # ... or after so many lines
_DIED = (
  "a parser process died, perhaps for want of memory. Run the same command again,"
  " what is parsed stays; --config.prepare.workers=1 needs least."
)
_ID = re.compile(r"^# sent_id = (\d+)", re.MULTILINE)


def chunks(lines: Sequence[str]) -> list[range]:
  """Cuts lines into chunks whose borders depend on the lines around only.

  So most chunks stay the same when a line comes or goes.
  """
  found, start = [], 0
  for i, line in enumerate(lines):
    hit = zlib.crc32(line.encode("utf-8")) % _CUT == 0
    if hit or i + 1 - start == _LONGEST or i + 1 == len(lines):
      found.append(range(start, i + 1))
      start = i + 1
  return found


def parse(
  lines: Sequence[str],
  parser: UDPipe,
  cache: pathlib.Path,
  *,
  workers: int,
  what: str,
) -> list[pathlib.Path]:
  """Parses lines into files of the cache, one a chunk, in order.

  Args:
    lines: one sentence a line; stays one whatever it holds.
    parser: the processes load it anew.
    cache: folder of the chunks.
    workers: processes; 0 is one a core.
    what: label of the progress bar.

  Returns:
    A CoNLL-U file (gzip) of each of `chunks(lines)`, under a line with its own
    name; sentence ids are line numbers in the chunk, from 0. Those of earlier
    calls are read, and made again where they are damaged.
  """
  cache.mkdir(parents=True, exist_ok=True)
  prefix = f"{parser.sha256}:{parser.beam}:{LONGEST_LINE}"
  jobs, paths = {}, []
  for chunk in chunks(lines):
    texts = lines[chunk.start : chunk.stop]
    path = cache / f"{manifests.sha256_texts([prefix, *texts])[:32]}.conllu.gz"
    paths.append(path)
    if path not in jobs and _read(path) is None:
      jobs[path] = texts
  missing = sum(map(len, jobs.values()))
  workers = min(workers or cores(), len(jobs))
  print(f"{what}: {len(lines):,} lines, {missing:,} to do", flush=True)
  started = time.monotonic()
  with tqdm(
    total=len(lines),
    initial=len(lines) - missing,
    desc=what,
    unit="line",
    disable=not sys.stderr.isatty(),
  ) as bar:
    for done in _run(jobs, parser, workers):
      bar.update(done)
  if missing:
    seconds = time.monotonic() - started
    speed = f"{missing / seconds:.0f} lines/s, {workers} processes"
    print(f"{what}: done in {seconds:.1f} s ({speed})", flush=True)
  return paths


def join(
  split: RawSplit, side: str, path: pathlib.Path, paths: Iterable[pathlib.Path]
) -> set[str]:
  """Writes the trees of the kept lines from what `parse` made of them.

  Args:
    split: of these lines.
    side: of the trees.
    path: file to write, gzip; sentence ids are SPLIT-NUMBER.
    paths: of the chunks.

  Returns: the relation labels in them.
  """
  relations: set[str] = set()
  numbers = split.numbers

  def texts() -> Iterator[str]:
    for chunk_path, chunk in zip(paths, chunks(split.lines(side))):
      text, start = _read(chunk_path), chunk.start
      if text is None:
        raise InputError(
          f"{chunk_path} changed while it was in use. Run the same command"
          " again: only its lines are parsed anew."
        )

      for block in conllu.blocks_of_text(text, str(chunk_path)):
        relations.update(block.relation_W)

      def name(match: re.Match[str], start: int = start) -> str:
        return f"# sent_id = {split.name}-{numbers[start + int(match[1])]}"

      yield _ID.sub(name, text)

  write_text(path, texts())
  return relations


def take(
  split: RawSplit, side: str, path: pathlib.Path, *, whole: bool = False
) -> set[str]:
  """Writes the trees of the kept lines from a CoNLL-U file of all lines.

  Args:
    split: has that file, by another parser, of the raw file before cleaning.
    side: of the trees.
    path: file to write, gzip; sentence ids are SPLIT-NUMBER.
    whole: with the columns that annotations read.

  Returns: the relation labels in them.

  Raises:
    InputError: the CoNLL-U is malformed, or of another text.
  """
  relations: set[str] = set()
  kept = set(split.kept)
  parses = conllu.match(
    conllu.read(split.given[side]),
    split.all_lines(side),
    str(split.file(side)),
  )

  def texts() -> Iterator[str]:
    for i, parse in enumerate(parses):
      if i in kept:
        relations.update(parse.relation_W)
        yield conllu.to_text(parse, f"{split.name}-{i + 1}", whole)

  write_text(path, texts())
  return relations


def write_text(path: pathlib.Path, texts: Iterable[str]) -> None:
  """Writes texts one after the other, gzip, the same bytes always."""
  with (
    files.publish(path) as file,
    # Level 6 packs as well as 9 for text, three times as fast.
    gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
  ):
    for text in texts:
      packed.write(text.encode("utf-8"))


def _read(path: pathlib.Path) -> str | None:
  """The trees of a chunk; None where it is not made yet, or is damaged."""
  try:
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
  except FileNotFoundError:
    return None
  except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError):
    text = ""
  # gzip has a checksum, but an empty file is one too, and a whole one may be
  # another: each begins with its own name.
  first, _, trees = text.partition("\n")
  if first == _first(path):
    return trees
  print(f"damaged: {path} is parsed again", flush=True)
  return None


def _first(path: pathlib.Path) -> str:
  return f"# chunk = {path.name}"


def _run(
  jobs: dict[pathlib.Path, Sequence[str]],
  parser: UDPipe,
  workers: int,
) -> Iterator[int]:
  """Does the jobs; yields the number of lines of each one done."""
  if workers <= 1:
    for path, texts in jobs.items():
      yield _parse_chunk(parser, path, texts)
    return
  make = functools.partial(UDPipe, parser.path, parser.beam)
  with Workers(make, workers, died=_DIED) as crew:
    chunks = [crew.submit(_parse_chunk, *job) for job in jobs.items()]
    for chunk in concurrent.futures.as_completed(chunks):
      yield chunk.result()


def _parse_chunk(
  parser: UDPipe, path: pathlib.Path, texts: Sequence[str]
) -> int:
  trees = (parser.conllu(text, str(i)) for i, text in enumerate(texts))
  write_text(path, itertools.chain([f"{_first(path)}\n"], trees))
  return len(texts)
