"""Runs commands in forks of a process that has imported the package: SOCKET.

This saves the seconds in which each process would import JAX. `started` yields a
folder with a program `python` that takes -m MODULE or -c CODE.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLIENT = """
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(sys.argv[1])
request = json.dumps([os.getcwd(), dict(os.environ), sys.argv[2:]]).encode()
socket.send_fds(server, [request], [0, 1, 2])
process = int(server.recv(20))
signal.signal(signal.SIGTERM, lambda number, _: os.kill(process, number))
status = int(server.recv(20))
sys.exit(status if status >= 0 else 128 - status)
"""


@contextlib.contextmanager
def started(folder: pathlib.Path, environment) -> Iterator[pathlib.Path]:
  """Yields a folder for PATH whose program `python` runs in forks."""
  (folder / "client.py").write_text(CLIENT)
  words = f"{sys.executable} -IS {folder}/client.py {folder}/socket"
  (folder / "python").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
  (folder / "python").chmod(0o755)
  process = subprocess.Popen(
    [sys.executable, __file__, folder / "socket"],
    env=environment | {"PYTHONPATH": str(ROOT)},
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
  )
  with process:
    assert process.stdout.readline() == b"ready\n"
    yield folder
    process.kill()


def wait_for_words(path: str) -> list[str]:
  """Forks for each client; returns, in the fork alone, its command line."""
  signal.signal(signal.SIGCHLD, signal.SIG_IGN)
  with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.bind(path)
    server.listen()
    print("ready", flush=True)
    while True:
      client, _ = server.accept()
      if not os.fork():
        break
      client.close()
  signal.signal(signal.SIGCHLD, signal.SIG_DFL)
  request, descriptors, *_ = socket.recv_fds(client, 1 << 20, 3)
  if process := os.fork():
    client.send(str(process).encode())
    _, status = os.waitpid(process, 0)
    client.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)
  client.close()
  for number, descriptor in enumerate(descriptors):
    os.dup2(descriptor, number)
    os.close(descriptor)
  folder, environment, words = json.loads(request)
  os.chdir(folder)
  os.environ.clear()
  os.environ.update(environment)
  return words


def main() -> None:
  from jaxsyn.commands import COMMANDS

  modules = [command.module for command in COMMANDS.values()]
  for name in (*modules, "tensorboardX", "matplotlib.pyplot"):
    importlib.import_module(name)
  for name in modules:  # runpy runs them again, as __main__
    del sys.modules[name]
  kind, value, *words = wait_for_words(sys.argv[1])
  sys.path[0] = os.getcwd()
  sys.argv = [kind, *words]
  if kind == "-m":
    runpy.run_module(value, run_name="__main__", alter_sys=True)
  else:
    exec(compile(value, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
  main()
