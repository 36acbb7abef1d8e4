"""Two tiny runs served in this process, and a server process for the page."""

import contextlib
import re
import signal
import subprocess
import sys

import pytest
from serving_client import ServiceClient

from jaxsyn.serving.requests import ServiceLimits
from jaxsyn.serving.runs import RunLocation, ServedRun
from jaxsyn.serving.service import Service


@pytest.fixture(scope="session")
def served(runs):
  """Two runs, opened."""
  opened = [
    ServedRun(RunLocation(name, (str(runs[name]),)))
    for name in ("pascal", "deps_san")
  ]
  yield opened
  for one in opened:
    one.close()


@pytest.fixture(scope="session")
def made(served):
  """A function that returns a client of a service of both runs."""
  services = []

  def make(*, policy=None, works=True, **limits):
    service = Service(served, ServiceLimits(**limits), max_sentences=8)
    service.state = "ok"
    if works:
      service.worker.start()
      services.append(service)
    return ServiceClient(service, **(policy or {}))

  yield make
  for service in services:
    service.worker.close()
    service.worker.done.result(60)


@pytest.fixture(scope="session")
def ask(made):
  """A client of a service with the default limits."""
  return made()


@pytest.fixture(scope="session")
def address(runs, environment):
  """Address of a server process of two runs."""
  names = ("pascal", "gru_global")
  command = [sys.executable, "-m", "jaxsyn", "serve", "--port", "0"]
  server = subprocess.Popen(
    [*command, "--compile", "0", *(f"{name}={runs[name]}" for name in names)],
    stdout=subprocess.PIPE,
    text=True,
    env=environment,
  )
  try:
    for line in server.stdout:
      if matches := re.search(r"http://\S+", line):
        yield matches[0]
        break
    else:
      pytest.fail("the server did not begin")
  finally:
    server.send_signal(signal.SIGTERM)
    server.wait(60)


@pytest.fixture(scope="module")
def browser():
  """A browser; while it is open, nothing else may run an asyncio loop."""
  from page_under_test import CHROMIUM, playwright

  with playwright.sync_playwright() as player:
    browser = player.chromium.launch(
      executable_path=CHROMIUM, args=["--no-sandbox"]
    )
    yield browser
    browser.close()


@pytest.fixture
def opened(browser, address):
  """A function that opens the page, which must not log or throw anything."""
  messages, pages = [], contextlib.ExitStack()

  def open_page(query="", **how):
    page = pages.enter_context(
      contextlib.closing(browser.new_page(**{"reduced_motion": "reduce"} | how))
    )
    # What a test answers itself may be under way when it ends.
    pages.callback(page.unroute_all, behavior="ignoreErrors")
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("console", lambda message: messages.append(message.text))
    page.goto(f"{address}/{query}")
    return page

  with pages:
    yield open_page
  # What the server refuses is logged by the browser itself.
  known = ("status of 422", "net::ERR_FAILED")
  assert [one for one in messages if not any(why in one for why in known)] == []
