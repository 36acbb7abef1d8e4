"""Metrics of a server for Prometheus."""

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
  """Counters, histograms and gauges of one server."""

  def __init__(self) -> None:
    self._registry = registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    self._requests = Counter(
      "jaxsyn_requests",
      "Requests by path and status; 499: the client disconnected.",
      ["path", "status"],
      registry=registry,
    )
    self._seconds = Histogram(
      "jaxsyn_request_seconds",
      "Time from a request to the end of its response.",
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

  def add_gauge(
    self, name: str, meaning: str, value: Callable[[], float]
  ) -> None:
    """Adds a gauge whose value is computed when the metrics are read."""
    Gauge(name, meaning, registry=self._registry).set_function(value)

  def count_request(self, path: str, status: int, seconds: float) -> None:
    self._requests.labels(path, str(status)).inc()
    self._seconds.labels(path).observe(seconds)

  def count_batch(self, run: str, sentences: int) -> None:
    self._batches.labels(run).observe(sentences)
    self._sentences.labels(run).inc(sentences)

  def text(self) -> bytes:
    """Returns the metrics in the text format of Prometheus."""
    return prometheus_client.generate_latest(self._registry)
