"""Pool of worker processes that share one object, which is created once.

  with Workers(functools.partial(UDPipe, path), 2, died="...") as workers:
    trees = [workers.submit(UDPipe.conllu, line, "") for line in lines]
    print(*(tree.result() for tree in trees))

A new process creates the object and then forks the other workers, so time and
memory for the object are spent once. The workers are not forks of this process,
since a fork would lose the threads of JAX, and they do not run its main module,
as workers of `multiprocessing` and `concurrent.futures` would. They end with
this process, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Generic, Self, TypeVar

from jaxsyn.errors import InputError

Shared = TypeVar("Shared")
Result = TypeVar("Result")

_CODE = "from jaxsyn.utils import workers; workers.serve()"


def cores() -> int:
  """Returns the number of processor cores that this process may use."""
  return len(os.sched_getaffinity(0))


class WorkerDiedError(InputError):
  """Error for a call whose worker process was killed."""


class Workers(Generic[Shared]):
  """Pool of worker processes that call functions with one shared object."""

  def __init__(self, make: Callable[[], Shared], count: int, *, died: str):
    """Starts the worker processes; `submit` may be called immediately.

    Args:
      make: Function that creates the object in the first worker; it is pickled.
      count: Number of worker processes.
      died: Error message if a worker process is killed.
    """
    self._died = died
    # One duplex connection per worker process.
    self._ours, theirs = zip(*(Pipe() for _ in range(count)))
    handles = [connection.fileno() for connection in theirs]
    self._process = subprocess.Popen(
      [sys.executable, "-c", _CODE, *map(str, handles)],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      pass_fds=handles,
      env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
      # Ctrl-C is sent to this process only. Not a new session: Linux divides
      # the cores between sessions, and would ignore `nice`.
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
    """Calls function(object, *args) in a worker process; returns a future.

    Calls start in order. Function, arguments and result are pickled. The future
    raises the exception of the function, or WorkerDiedError if the process was
    killed.
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
      self._idle.put(connection)  # also after an error: later calls fail too
    if error is not None:
      raise error
    return result

  def close(self) -> None:
    """Ends the worker processes, even while a call is running."""
    self._pool.shutdown(wait=False, cancel_futures=True)
    if self._idle.qsize() < len(self._ours):
      # Not SIGTERM: Python drops it in a process that is being forked.
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self._process.pid, signal.SIGKILL)
    self._pool.shutdown()
    for connection in self._ours:
      connection.close()
    self._process.wait()

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()


def serve() -> None:
  """Runs the first worker process, which forks the other worker processes."""
  connections = [Connection(int(handle)) for handle in sys.argv[1:]]
  shared, error = None, None
  try:
    shared = connections[0].recv()()
  except EOFError:  # the parent has ended
    return
  except Exception as raised:
    error = raised
  own = connections[0]
  children: list[int] = []
  for connection in connections[1:]:
    child = os.fork()
    if not child:
      own, children = connection, []
      break
    children.append(child)
  for connection in connections:
    if connection is not own:
      connection.close()
  _work(own, shared, error)
  for child in children:  # adds their processor time to that of this process
    os.waitpid(child, 0)


def _work(
  connection: Connection, shared: Any, make_error: Exception | None
) -> None:
  """Executes function calls from the parent process until the parent ends.

  Args:
    connection: Connection to the parent process.
    shared: Object that the calls share.
    make_error: Exception from creating the object; every call raises it.
  """
  busy = threading.Event()
  watcher = threading.Thread(
    target=_end_with_parent, args=(connection, busy), daemon=True
  )
  watcher.start()
  with contextlib.suppress(EOFError, OSError):  # the parent has ended
    while True:
      call = connection.recv_bytes()
      busy.set()
      result = error = None
      try:
        if make_error is not None:
          raise make_error
        function, args = pickle.loads(call)
        result = function(shared, *args)
      except Exception as raised:
        error = raised
      busy.clear()
      connection.send((result, error))


def _end_with_parent(connection: Connection, busy: threading.Event) -> None:
  """Ends this worker process if its parent ends while it calls a function."""
  hang_up = select.poll()
  hang_up.register(connection.fileno(), select.POLLRDHUP)
  hang_up.poll()
  busy.wait()
  os._exit(1)
