"""Two tiny runs, served in this process."""

import pytest
from asked_services import Asked

from jaxsyn.serving.limits import Limits
from jaxsyn.serving.runs import Place, Served
from jaxsyn.serving.service import Service


@pytest.fixture(scope="session")
def served(runs):
  """Two runs, opened."""
  opened = [
    Served(Place(name, (str(runs[name]),))) for name in ("pascal", "deps_san")
  ]
  yield opened
  for one in opened:
    one.close()


@pytest.fixture(scope="session")
def made(served):
  """A function limits... -> a service of both runs that works."""
  services = []

  def make(*, doors=None, works=True, **limits):
    service = Service(served, Limits(**limits), together=8)
    service.state = "ok"
    if works:
      service.worker.start()
      services.append(service)
    return Asked(service, **(doors or {}))

  yield make
  for service in services:
    service.worker.close()
    service.worker.done.result(60)


@pytest.fixture(scope="session")
def ask(made):
  """A service with the usual limits."""
  return made()
