"""Parses sentences and converts them to arrays in worker processes.

A parser in C++ can hold Python's lock for a tenth of a second, in which the server
could not respond, and it can crash.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode.sources import ReadSource, SessionReader
from jaxsyn.errors import InputError
from jaxsyn.utils.workers import WorkerDiedError, Workers, cores

_PROCESSES = 2  # so that a short line need not wait until a batch is read
_DIED = "the parser process died at this sentence, perhaps out of memory."


class ReaderProcesses:
  """Worker processes that parse a run's sources and convert them to arrays.

  Attributes:
    why_no_parser: Reason why raw lines cannot be parsed; "" if they can.
  """

  def __init__(self, reader: SessionReader, *, must_parse: bool = False):
    """Starts the worker processes and opens the parser.

    Args:
      reader: Reader of the run, of which each process has a copy.
      must_parse: Whether to raise an error if there is no parser.

    Raises:
      InputError: The parser cannot be opened.
    """
    self._reader = reader
    self._lock, self._is_closed = threading.Lock(), False
    self._workers = self._start()
    self._threads = ThreadPoolExecutor(_PROCESSES, "reading")
    self.why_no_parser = ""
    try:
      self._call(SessionReader.open_parser)
    except InputError as error:
      if must_parse:
        self.close()
        raise
      self.why_no_parser = str(error)

  def parse(self, source: Source) -> Parse:
    """Returns the tree of a source; parses a raw line in a worker process."""
    if not isinstance(source, str):
      return source
    return self._call(SessionReader.tree_of, source)

  def read(self, sources: Sequence[Source]) -> list[ReadSource | InputError]:
    """Converts sentences to arrays, or to errors if they are invalid.

    Returns:
      For each sentence its arrays and whether it was truncated, or an InputError.
    """
    results = list(self._threads.map(self._read_one, sources))
    for index, result in enumerate(results):
      if isinstance(result, WorkerDiedError):  # perhaps by another sentence
        results[index] = self._read_one(sources[index])
    return results

  def close(self) -> None:
    """Ends the worker processes."""
    with self._lock:
      self._is_closed = True
      self._workers.close()
    self._threads.shutdown(wait=False, cancel_futures=True)

  def _read_one(self, source: Source) -> ReadSource | InputError:
    try:
      return self._call(SessionReader.read_all, [source])[0]
    except InputError as error:
      return error

  def _call(self, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function in a worker; restarts dead workers and tries again."""
    for is_last in (False, True):
      workers = self._workers
      try:
        return self._submit(function, *args).result()
      except (WorkerDiedError, CancelledError):  # perhaps by another sentence
        self._restart(workers)
        if is_last:
          raise

  def _submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
    with self._lock:
      return self._workers.submit(function, *args)

  def _restart(self, dead: Workers[SessionReader]) -> None:
    """Replaces dead processes unless another thread has replaced them."""
    with self._lock:
      if dead is self._workers and not self._is_closed:
        self._workers = self._start()
        dead.close()

  def _start(self) -> Workers[SessionReader]:
    make = functools.partial(copy.copy, self._reader)
    return Workers(make, min(_PROCESSES, cores()), died=_DIED)
