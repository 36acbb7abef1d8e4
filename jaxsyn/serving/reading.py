"""Parsing and reading of sentences in worker processes.

A parser in C++ holds Python's lock, for a long sentence for a tenth of a second, in
which the server could not respond.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.workers import WorkerDiedError, Workers, cores

_PROCESSES = 2  # so that a short line need not wait until a batch is read
_BLOCK = 8  # sentences per call of a process
_DIED = "the parser died at this sentence, perhaps for want of memory."


class ReaderPool:
  """Worker processes that parse and read the sentences of a run.

  A run without a parser is read in this process.

  Attributes:
    why_no_parser: Reason why raw lines cannot be parsed; "" if they can.
  """

  def __init__(self, session: Session, *, must_parse: bool = False):
    """Starts the processes and opens the parser.

    Args:
      session: Session of the run.
      must_parse: Whether to raise an error if there is no parser.

    Raises:
      InputError: The parser cannot be opened.
    """
    self._reader: Any = session.reader
    self._lock, self._is_closed = threading.Lock(), False
    self._workers: Workers[Any] | None = None
    if self._reader.has_parser:
      self._workers = self._start()
    self.why_no_parser = ""
    try:
      self._call(type(self._reader).open_parser)
    except InputError as error:
      if must_parse:
        raise
      self.why_no_parser = str(error)

  def parse(self, line: str) -> Parse:
    """Returns the tree of a raw line; raises InputError."""
    return self._call(type(self._reader).tree_of, line)

  def read(
    self, sources: Sequence[Source]
  ) -> list[tuple[Any, bool] | InputError]:
    """Reads sentences.

    Returns:
      For each sentence its arrays and whether it was truncated, or an InputError.
    """
    read_all = type(self._reader).read_all
    blocks = [sources[i : i + _BLOCK] for i in range(0, len(sources), _BLOCK)]
    futures = [self._submit(read_all, block) for block in blocks]
    results: list[tuple[Any, bool] | InputError] = []
    for block, future in zip(blocks, futures):
      try:
        results += future.result()
      except (InputError, CancelledError):
        results += map(self._read_one, block)
    return results

  def close(self) -> None:
    """Ends the processes."""
    with self._lock:
      self._is_closed = True
      if self._workers is not None:
        self._workers.close()

  def _read_one(self, source: Source) -> tuple[Any, bool] | InputError:
    try:
      return self._call(type(self._reader).read_all, [source])[0]
    except InputError as error:
      return error

  def _call(self, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function in a process; restarts processes that have died."""
    workers = self._workers
    try:
      return self._submit(function, *args).result()
    except (WorkerDiedError, CancelledError):  # perhaps by another sentence
      self._restart(workers)
    try:
      return self._submit(function, *args).result()
    except WorkerDiedError:
      self._restart(self._workers)
      raise

  def _submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
    with self._lock:
      if self._workers is not None:
        return self._workers.submit(function, *args)
    future: Future[Any] = Future()
    try:
      future.set_result(function(self._reader, *args))
    except InputError as error:
      future.set_exception(error)
    return future

  def _restart(self, dead: Workers[Any] | None) -> None:
    """Replaces dead processes, unless another thread has done it."""
    with self._lock:
      if dead is not None and dead is self._workers and not self._is_closed:
        self._workers = self._start()
        dead.close()

  def _start(self) -> Workers[Any]:
    make = functools.partial(copy.copy, self._reader)
    return Workers(make, min(_PROCESSES, cores()), died=_DIED)
