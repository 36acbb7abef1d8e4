"""Counters for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

import prometheus_client
from prometheus_client import (
  CollectorRegistry,
  Counter,
  Gauge,
  Histogram,
  ProcessCollector,
)

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
  """What is counted; one a server."""

  def __init__(self) -> None:
    self._registry = registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    self._requests = Counter(
      "jaxsyn_requests",
      "Requests by path and status; 499: who asked went away.",
      ["path", "status"],
      registry=registry,
    )
    self._seconds = Histogram(
      "jaxsyn_request_seconds",
      "Time from a request to the end of its answer.",
      ["path"],
      buckets=_SECONDS,
      registry=registry,
    )
    self._sentences = Counter(
      "jaxsyn_sentences", "Sentences translated.", ["run"], registry=registry
    )
    self._batches = Histogram(
      "jaxsyn_batch_sentences",
      "Sentences translated together.",
      ["run"],
      buckets=_SENTENCES,
      registry=registry,
    )

  def gauge(
    self, name: str, meaning: str, value: Callable[[], float], **labels: str
  ) -> None:
    """Adds a number that is asked for when it is told."""
    gauge = Gauge(name, meaning, [*labels], registry=self._registry)
    (gauge.labels(**labels) if labels else gauge).set_function(value)

  def request(self, path: str, status: int, seconds: float) -> None:
    """A request was answered."""
    self._requests.labels(path, str(status)).inc()
    self._seconds.labels(path).observe(seconds)

  def batch(self, run: str, sentences: int) -> None:
    """Sentences are translated together."""
    self._batches.labels(run).observe(sentences)
    self._sentences.labels(run).inc(sentences)

  def batches_of(self, run: str) -> int:
    """How many batches of a run there were."""
    name = "jaxsyn_batch_sentences_count"
    return int(self._registry.get_sample_value(name, {"run": run}) or 0)

  def text(self) -> bytes:
    return prometheus_client.generate_latest(self._registry)
