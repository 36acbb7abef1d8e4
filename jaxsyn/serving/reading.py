"""Sentences parsed and read by processes beside this one.

A parser in C++ holds Python's lock: for a long sentence a tenth of a second, in
which a server would answer nobody. Before this file: `jaxsyn.trained.sources`,
`jaxsyn.workers`. After it: `runs`.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.workers import WorkerDiedError, Workers, cores

_PROCESSES = 2  # a short line need not wait until a batch is read
_BLOCK = 8  # sentences that a process is given at a time
_DIED = "the parser died at this sentence, perhaps for want of memory."


class Reading:
  """Reads the sentences of a run.

  Attributes:
    why_no_parser: "" where raw lines can be parsed.
  """

  def __init__(self, session: Session, *, named: bool = False):
    """Opens the parser, if the run has one.

    Args:
      session: of the run.
      named: whether a parser was named, so that it must open.

    Raises:
      InputError: one that was named cannot be opened.
    """
    self._session, self._lock = session, threading.Lock()
    self._ended = False
    self._kind: Any = type(session.reader)
    self._workers: Workers[Any] | None = None
    if session.reader.has_parser:
      self._workers = self._made()
    self.why_no_parser = ""
    try:
      self._call(self._kind.open_parser)
    except InputError as error:
      if named:
        raise
      self.why_no_parser = str(error)

  def parse(self, line: str) -> Parse:
    """The tree of a raw line.

    Raises:
      InputError: it cannot be parsed.
    """
    return self._call(self._kind.tree_of, line)

  def read(self, sources: Sequence[Any]) -> list[Any]:
    """What each sentence is to the model, and whether it is cut.

    In the place of one that cannot be read stands its InputError.
    """
    session, workers = self._session, self._workers
    if workers is None or session.reader.tree == "none":
      return self._each(session.reader.read_all, sources)
    blocks = [sources[i : i + _BLOCK] for i in range(0, len(sources), _BLOCK)]
    futures = [workers.submit(self._kind.read_all, block) for block in blocks]
    read: list[Any] = []
    for block, answer in zip(blocks, futures):
      try:
        read += answer.result()
      except InputError as error:
        self._restart_workers(workers, error)
        read += self._each(self._read_all, block)
    return read

  def close(self) -> None:
    """Ends the processes."""
    with self._lock:
      self._ended = True
      if self._workers is not None:
        self._workers.close()

  def _read_all(self, sources: Sequence[Any]) -> list[Any]:
    return self._call(self._kind.read_all, sources)

  def _each(
    self, read: Callable[[Sequence[Any]], list[Any]], sources: Sequence[Any]
  ) -> list[Any]:
    """All together, or, where one has a fault, one by one."""
    try:
      return list(read(sources))
    except InputError as error:
      if len(sources) == 1:
        return [error]
    return [self._each(read, [source])[0] for source in sources]

  def _call(self, function: Callable[..., Any], *args: Any) -> Any:
    for last in (False, True):
      workers = self._workers
      if workers is None:
        return function(self._session.reader, *args)
      try:
        return workers.submit(function, *args).result()
      except WorkerDiedError as error:
        self._restart_workers(workers, error)
        if last:  # at first it may have been another sentence
          raise
    raise AssertionError

  def _restart_workers(self, workers: Workers[Any], error: InputError) -> None:
    """Starts the processes again, if one of them has died."""
    with self._lock:
      if (
        isinstance(error, WorkerDiedError)
        and workers is self._workers
        and not self._ended
      ):
        self._workers = self._made()
        workers.close()

  def _made(self) -> Workers[Any]:
    count = min(_PROCESSES, cores())
    make = functools.partial(copy.copy, self._session.reader)
    return Workers(make, count, died=_DIED)
