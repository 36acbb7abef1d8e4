"""How a server of `jaxsyn serve` bears many clients.

  jaxsyn serve runs/pascal --port 8080 &
  python -m benchmarks.serve_load --url http://127.0.0.1:8080 \\
    --input test.en.gz --clients 200 --minutes 10 [--hostile 20] [--pid PID]

Each client sends a sentence of the text to /translate, waits for the answer, and
sends the next, on a connection that it keeps; one of them asks /health alone, ten
times a second. Hostile clients beside them send heads and bodies drop by drop,
bodies without an end, half of a request, and garbage, and take no answers. With
--pid, a process of this machine, its resident memory is read every ten seconds;
`rss_slope` is the line through what was read in the second half.

One line a figure: name=value unit. Exit status 1 if a client was answered by
anything but 200, 429 or 503.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import pathlib
import random
import sys
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx
import numpy as np
from absl import flags

from benchmarks.figures import Figures, show
from jaxsyn import cli
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.options import Range
from jaxsyn.options.flags import number_flag

POLITE = 0.5  # seconds that a client waits which was sent away
EVERY = 10.0  # seconds between two looks at the memory


class Load:
  """What was seen.

  Attributes:
    seconds: of the answers, by path.
    statuses: how often each was answered; or the name of an error.
    memory: (seconds since the beginning, MiB).
  """

  def __init__(self, url: str, lines: Sequence[str], end: float):
    self._url, self._lines, self._end = url, lines, end
    self.seconds: dict[str, list[float]] = collections.defaultdict(list)
    self.statuses: collections.Counter[str] = collections.Counter()
    self.memory: list[tuple[float, float]] = []
    self.cut = 0  # hostile clients that were hung up on

  async def client(self, number: int) -> None:
    """Asks for one translation after another."""
    chosen = random.Random(number)
    async with self._connection() as own:
      await asyncio.sleep(chosen.random())
      while time.monotonic() < self._end:
        told = {"text": chosen.choice(self._lines)}
        if await self._ask(own, "POST", "/translate", told) != "200":
          await asyncio.sleep(POLITE)

  async def health(self) -> None:
    """Asks how the server is."""
    async with self._connection() as own:
      while time.monotonic() < self._end:
        await self._ask(own, "GET", "/health", None)
        await asyncio.sleep(0.1)

  async def hostile(self, number: int) -> None:
    """Does one thing that no client should, again and again."""
    ways = (_head, _body, _endless, _half, _garbage, _deaf)
    way = ways[number % len(ways)]
    address = urlsplit(self._url)
    while time.monotonic() < self._end:
      writer = None
      try:
        _, writer = pair = await asyncio.open_connection(
          address.hostname, address.port
        )
        await asyncio.wait_for(way(*pair), max(1, self._end - time.monotonic()))
      except (OSError, TimeoutError):
        pass
      finally:
        self.cut += 1
        if writer is not None:
          writer.close()
      await asyncio.sleep(0.2)

  async def watch(self, pid: int) -> None:
    """Reads a process's memory."""
    began = time.monotonic()
    path = pathlib.Path(f"/proc/{pid}/statm")
    page = os.sysconf("SC_PAGE_SIZE") / 2**20
    while time.monotonic() < self._end:
      pages = int(path.read_text().split()[1])
      self.memory.append((time.monotonic() - began, pages * page))
      await asyncio.sleep(EVERY)

  def _connection(self) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=self._url, timeout=120)

  async def _ask(
    self, own: httpx.AsyncClient, method: str, path: str, told: object
  ) -> str:
    began = time.monotonic()
    try:
      answer = await own.request(method, path, json=told)
    except httpx.HTTPError as error:
      status = type(error).__name__
    else:
      status = str(answer.status_code)
    if status == "200":
      self.seconds[path].append(time.monotonic() - began)
    self.statuses[status] += 1
    return status


async def _head(
  reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
  writer.write(b"POST /translate HTTP/1.1\r\nHost: localhost\r\n")
  while True:
    writer.write(b"X: y\r\n")
    await writer.drain()
    await asyncio.sleep(1)


async def _body(
  reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
  writer.write(_post("Content-Length: 1000"))
  while True:
    writer.write(b" ")
    await writer.drain()
    await asyncio.sleep(1)


async def _endless(
  reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
  writer.write(_post("Transfer-Encoding: chunked"))
  while True:
    writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
    await writer.drain()


async def _half(
  reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
  writer.write(_post("Content-Length: 100") + b"{")
  writer.write_eof()
  await reader.read()


async def _garbage(
  reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
  writer.write(random.randbytes(4096))
  await reader.read()


async def _deaf(
  reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
  while True:  # its answers are never read
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await writer.drain()
    await asyncio.sleep(0.01)


def _post(header: str) -> bytes:
  return (
    f"POST /translate HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode()
  )


async def run(
  url: str,
  lines: Sequence[str],
  *,
  clients: int,
  seconds: float,
  hostile: int = 0,
  pid: int = 0,
) -> tuple[dict[str, tuple[float, str]], bool]:
  """Loads a server.

  Args:
    url: of it.
    lines: sentences.
    clients, hostile: how many at one time.
    seconds: for which they ask.
    pid: of the server, or 0.

  Returns: the figures, and whether all was answered as it should be.
  """
  began = time.monotonic()
  load = Load(url, lines, began + seconds)
  work = [load.client(number) for number in range(clients)]
  work += [load.hostile(number) for number in range(hostile)]
  work += [load.health()] + ([load.watch(pid)] if pid else [])
  await asyncio.gather(*work)
  figures = _figures(load, time.monotonic() - began)
  return figures, not {*load.statuses} - {"200", "429", "503"}


def _figures(load: Load, seconds: float) -> dict[str, tuple[float, str]]:
  found: dict[str, tuple[float, str]] = {"seconds": (seconds, "s")}
  for path, times in sorted(load.seconds.items()):
    name = path.strip("/")
    found[f"{name}_answers"] = (len(times), "answers")
    found[f"{name}_rate"] = (len(times) / seconds, "answers/s")
    for share in (50, 95, 99, 100):
      value = float(np.percentile(times, share))
      found[f"{name}_p{share}"] = (value * 1000, "ms")
  for status, count in sorted(load.statuses.items()):
    found[f"status_{status}"] = (count, "answers")
  found["hostile_cut"] = (load.cut, "connections")
  if len(load.memory) > 3:
    at, mib = np.array(load.memory).T
    half = len(at) // 2
    slope = float(np.polyfit(at[half:], mib[half:], 1)[0])
    found["rss_first"], found["rss_last"] = (mib[0], "MiB"), (mib[-1], "MiB")
    found["rss_most"] = (float(mib.max()), "MiB")
    found["rss_slope"] = (slope * 60, "MiB/min")
  return found


def _main(values: flags.FlagValues) -> None:
  if not values.input:
    raise InputError("--input is missing: name a file of sentences.")
  lines = [line for line in read_lines(values.input) if line.strip()]
  figures: Figures
  with contextlib.suppress(KeyboardInterrupt):
    figures, is_fine = asyncio.run(
      run(
        values.url,
        lines,
        clients=values.clients,
        seconds=60 * values.minutes,
        hostile=values.hostile,
        pid=values.pid,
      )
    )
    show(figures)
    sys.exit(not is_fine)


def define_flags() -> None:
  """Those of the benchmark."""
  flags.DEFINE_string("url", "http://127.0.0.1:8080", "Of the server.")
  flags.DEFINE_string("input", None, "Sentences, plain or packed.")
  number_flag("clients", 200, Range(1, 100_000), "At one time.")
  number_flag("hostile", 0, Range(0, 100_000), "Clients that do harm.")
  number_flag("minutes", 10.0, Range(0.001, 10_000), "Of it.", float)
  number_flag("pid", 0, Range(0, 2**31), "Of the server, for its memory.")


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
