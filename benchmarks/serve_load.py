"""Measures a server of `jaxsyn serve` under many clients.

  jaxsyn serve runs/pascal --port 8080 &
  python -m benchmarks.serve_load --url http://127.0.0.1:8080 \\
    --input test.en.gz --clients 200 --minutes 10 [--pid PID]

Each client sends a sentence to /translate, waits for the response, and sends the
next one on the same connection. One more client requests /health ten times a
second. With --pid, the resident memory of this process of the same machine is
measured every ten seconds; `rss_slope` is its regression line in the second half.

The exit status is 1 if a response is anything but 200 or 503.
"""

from __future__ import annotations

import asyncio
import collections
import os
import pathlib
import random
import sys
import time
from collections.abc import Sequence

import httpx
import numpy as np
from absl import flags

from benchmarks.figures import Figures, show
from jaxsyn import cli
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.options import Range
from jaxsyn.options.flags import number_flag

RETRY = 0.5  # seconds until a client sends again after an error
HEALTH_EVERY = 0.1  # seconds
MEMORY_EVERY = 10.0  # seconds


class Load:
  """Simulated clients of a server, and their measurements.

  Attributes:
    seconds: Response times by path.
    statuses: Number of responses by status or name of an error.
    memory: (seconds since the start, MiB).
  """

  def __init__(self, url: str, lines: Sequence[str], seconds: float):
    self._url, self._lines = url, lines
    self._start = time.monotonic()
    self._end = self._start + seconds
    self.seconds: dict[str, list[float]] = collections.defaultdict(list)
    self.statuses: collections.Counter[str] = collections.Counter()
    self.memory: list[tuple[float, float]] = []

  async def run(self, clients: int, pid: int) -> None:
    """Sends the requests of all clients until the end of the measurement.

    Args:
      clients: Number of simultaneous clients.
      pid: Process id of the server, to measure its memory; 0: not measured.
    """
    tasks = [self._translate(seed) for seed in range(clients)]
    tasks.append(self._check_health())
    if pid:
      tasks.append(self._measure_memory(pid))
    await asyncio.gather(*tasks)

  async def _translate(self, seed: int) -> None:
    """Simulates a client that requests one translation after another."""
    rng = random.Random(seed)
    async with httpx.AsyncClient(base_url=self._url, timeout=120) as client:
      await asyncio.sleep(rng.random())
      while time.monotonic() < self._end:
        content = {"text": rng.choice(self._lines)}
        if await self._send(client, "POST", "/translate", content) != "200":
          await asyncio.sleep(RETRY)

  async def _check_health(self) -> None:
    async with httpx.AsyncClient(base_url=self._url, timeout=120) as client:
      while time.monotonic() < self._end:
        await self._send(client, "GET", "/health", None)
        await asyncio.sleep(HEALTH_EVERY)

  async def _measure_memory(self, pid: int) -> None:
    path = pathlib.Path(f"/proc/{pid}/statm")
    page = os.sysconf("SC_PAGE_SIZE") / 2**20
    while time.monotonic() < self._end:
      pages = int(path.read_text().split()[1])
      self.memory.append((time.monotonic() - self._start, pages * page))
      await asyncio.sleep(MEMORY_EVERY)

  async def _send(
    self, client: httpx.AsyncClient, method: str, path: str, content: object
  ) -> str:
    start = time.monotonic()
    try:
      response = await client.request(method, path, json=content)
      status = str(response.status_code)
    except httpx.HTTPError as error:
      status = type(error).__name__
    if status == "200":
      self.seconds[path].append(time.monotonic() - start)
    self.statuses[status] += 1
    return status

  def figures(self) -> Figures:
    """Returns response rates, latencies, status counts and memory use."""
    seconds = time.monotonic() - self._start
    figures: dict[str, tuple[float, str]] = {"seconds": (seconds, "s")}
    for path, times in sorted(self.seconds.items()):
      name = path.strip("/")
      figures[f"{name}_responses"] = len(times), "responses"
      figures[f"{name}_rate"] = len(times) / seconds, "responses/s"
      for percent in (50, 95, 99, 100):
        value = 1000 * float(np.percentile(times, percent))
        figures[f"{name}_p{percent}"] = value, "ms"
    for status, count in sorted(self.statuses.items()):
      figures[f"status_{status}"] = count, "responses"
    if len(self.memory) > 3:
      time_N, mib_N = np.array(self.memory).T
      half = len(time_N) // 2
      slope = float(np.polyfit(time_N[half:], mib_N[half:], 1)[0])
      figures["rss_first"] = mib_N[0], "MiB"
      figures["rss_last"] = mib_N[-1], "MiB"
      figures["rss_most"] = mib_N.max(), "MiB"
      figures["rss_slope"] = slope * 60, "MiB/min"
    return figures


def _main(values: flags.FlagValues) -> None:
  if not values.input:
    raise InputError("--input is missing: name a file of sentences.")
  lines = [line for line in read_lines(values.input) if line.strip()]
  load = Load(values.url, lines, 60 * values.minutes)
  asyncio.run(load.run(values.clients, values.pid))
  show(load.figures())
  sys.exit(bool({*load.statuses} - {"200", "503"}))


if __name__ == "__main__":
  flags.DEFINE_string("url", "http://127.0.0.1:8080", "URL of the server.")
  flags.DEFINE_string("input", None, "Sentences, plain or .gz.")
  number_flag("clients", 200, Range(1, 100_000), "Simultaneous clients.")
  number_flag("minutes", 10.0, Range(0.001, 10_000), "Duration.", float)
  number_flag("pid", 0, Range(0, 2**31), "Process id of the server.")
  cli.main(_main)
