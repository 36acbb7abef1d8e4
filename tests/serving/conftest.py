"""Tiny runs, served in this process and in a process of its own."""

import contextlib
import threading

import pytest
from serving_client import ServiceClient, serving

from jaxsyn.serving.requests import ServiceLimits
from jaxsyn.serving.runs import ServedRun
from jaxsyn.serving.service import Service


@pytest.fixture(scope="session")
def served(runs):
  """Two opened runs."""
  names = ("pascal", "deps_san")
  opened = [ServedRun(name, [str(runs[name])]) for name in names]
  yield opened
  for one in opened:
    one.readers.close()


@pytest.fixture(scope="session")
def new_client(served):
  """A function that returns a client of a new service; "blocked": a busy one."""
  workers, unblocked = [], threading.Event()

  def make(*, runs=served, hosts=("localhost",), origins=(), blocked=False, **limits):  # fmt: skip
    service = Service(runs, ServiceLimits(**limits), max_sentences=8)
    service.state = "ok"
    workers.append(service.worker)
    if blocked:
      service.worker.call(unblocked.wait)
    return ServiceClient(service, hosts, origins)

  yield make
  unblocked.set()
  for worker in workers:
    worker.close().result(60)


@pytest.fixture(scope="session")
def client(new_client):
  """Client of a service with the default limits."""
  return new_client()


@pytest.fixture
def start(runs, environment):
  """A function that starts a server of a run in another process."""
  with contextlib.ExitStack() as stack:
    run = f"it={runs['pascal']}"
    yield lambda *flags, **handlers: stack.enter_context(
      serving(environment, run, *flags, **handlers)
    )
