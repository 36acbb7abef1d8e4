"""Processes beside this one that work with one thing, which is made once.

  with Workers(functools.partial(UDPipe, path), 2, died="...") as workers:
    trees = [workers.submit(UDPipe.conllu, line, "") for line in lines]
    print(*(tree.result() for tree in trees))

They are no forks of this process, which may have threads (JAX) that a fork
would not carry, and do not run its main module, as those of `multiprocessing`
would. A fresh process makes the thing and then forks the others, so that the
seconds and the memory of it are spent once. All of them end with this process,
however that ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from jaxsyn.errors import InputError

Made = TypeVar("Made")
Result = TypeVar("Result")

_CODE = "from jaxsyn import workers; workers.serve()"


def cores() -> int:
  """How many this process may use."""
  return len(os.sched_getaffinity(0))


class WorkerDiedError(InputError):
  """One of the processes was killed."""


class Workers(Generic[Made]):
  """Processes that were given one thing to work with."""

  def __init__(self, make: Callable[[], Made], count: int, *, died: str):
    """Starts them; `submit` may be called at once.

    Args:
      make: makes the thing, in the first process; is pickled.
      count: of processes.
      died: what an InputError says if one of them is killed.
    """
    self._died = died
    # One duplex connection a process; the workers have the other ends.
    self._ours, theirs = zip(*(Pipe() for _ in range(count)))
    handles = [connection.fileno() for connection in theirs]
    self._process = subprocess.Popen(
      [sys.executable, "-c", _CODE, *map(str, handles)],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      pass_fds=handles,
      env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
      # Ctrl-C goes to this process alone. No session of its own: Linux shares
      # its cores between sessions, and `nice` would count for nothing.
      process_group=0,
    )
    for connection in theirs:
      connection.close()
    self._ours[0].send(make)
    self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
    for connection in self._ours:
      self._idle.put(connection)
    self._pool = ThreadPoolExecutor(count, "workers")

  def submit(
    self, function: Callable[..., Result], *args: Any
  ) -> Future[Result]:
    """The result of function(thing, *args), to come.

    Calls are begun in order. Function, arguments and result are pickled; what
    is raised there is raised by the future.

    Raises:
      Died: by the future, if the process was killed.
    """
    return self._pool.submit(self._call, function, args)

  def _call(self, function: Callable[..., Result], args: Any) -> Result:
    connection = self._idle.get()
    try:
      connection.send((function, args))
      result, error = connection.recv()
    except (EOFError, OSError):
      raise WorkerDiedError(self._died) from None
    finally:
      self._idle.put(connection)  # also a dead one: the next call fails, too
    if error is not None:
      raise error
    return result

  def close(self) -> None:
    """Ends them, in the midst of their work if they have any."""
    self._pool.shutdown(wait=False, cancel_futures=True)
    if self._idle.qsize() < len(self._ours):
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self._process.pid, signal.SIGTERM)
      # A process that is forked that very moment never hears of the signal, and
      # the first would wait for it, and we for the first.
      for connection in self._ours:
        end = socket.socket(fileno=os.dup(connection.fileno()))
        with end, contextlib.suppress(OSError):  # it may be dead
          end.shutdown(socket.SHUT_RDWR)
    self._pool.shutdown()
    for connection in self._ours:
      connection.close()
    self._process.wait()

  def __enter__(self) -> Self:
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    self.close()


def serve() -> None:
  """The processes: the first, and what it forks; see `Workers`."""
  signal.signal(signal.SIGTERM, lambda *_: sys.exit())
  connections = [Connection(int(handle)) for handle in sys.argv[1:]]
  connection_to_parent, made, fault = connections[0], None, None
  children: list[int] = []
  try:
    made = connection_to_parent.recv()()
  except EOFError:  # nobody is there any more
    return
  except Exception as error:
    fault = error
  for connection in connections[1:]:
    child = os.fork()
    if not child:
      connection_to_parent, children = connection, []
      break
    children.append(child)
  for connection in connections:
    if connection is not connection_to_parent:
      connection.close()
  with contextlib.suppress(OSError):  # nobody reads the answer any more
    try:
      _work(connection_to_parent, made, fault)
    finally:
      for child in children:  # so that their time is counted as ours
        os.waitpid(child, 0)


def _work(connection: Connection, made: Any, fault: Exception | None) -> None:
  calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()

  def receive() -> None:
    with contextlib.suppress(EOFError, OSError):
      while True:
        calls.put(connection.recv_bytes())
    os.kill(os.getpid(), signal.SIGTERM)  # even in the midst of a call

  threading.Thread(target=receive, daemon=True).start()
  while True:
    call = calls.get()
    result = error = None
    try:
      if fault is not None:
        raise fault
      function, args = pickle.loads(call)
      result = function(made, *args)
    except Exception as raised:
      error = raised
    connection.send((result, error))
