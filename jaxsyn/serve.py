"""Serves trained runs over HTTP: a page for people, JSON for programs.

  jaxsyn serve runs/pascal
  jaxsyn serve runs/pascal baseline=runs/transformer@best --port 8000
  curl -s localhost:8080/translate -d '{"text": "Two men play football."}'

A run is FOLDER, FOLDER@CHECKPOINT, hub:OWNER/NAME, or NAME=FOLDER; of an ensemble
several with commas. It listens at once, at an address that it says on standard
error, and answers when the programs of usual sizes are compiled (minutes the first
time; --compile 0: none): then the address is printed, and GET /health says "ok".
SIGTERM and Ctrl-C end it when what is being answered is answered. Paths, limits, and
how to stand behind a proxy: docs/serving.md.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from absl import flags, logging

from jaxsyn import cli
from jaxsyn.errors import InputError
from jaxsyn.options import Range, fields_of, metadata, range_of
from jaxsyn.options.flags import list_flag, number_flag
from jaxsyn.serving.limits import ServiceLimits
from jaxsyn.translating import run_flags, search_flags


def _main(values: flags.FlagValues) -> None:
  try:
    import prometheus_client  # noqa: F401
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
  except ImportError as error:
    raise InputError(
      f"serving needs the package {error.name}: pip install -e '.[serve]'"
    ) from None
  from jaxsyn.serving import runs, server, warm
  from jaxsyn.serving.network_policy import NetworkPolicy
  from jaxsyn.serving.service import Service
  from jaxsyn.training.mesh import set_up_jax

  places = runs.run_locations(values.run)
  log_values: dict[str, Any] = {
    field.name: values[field.name].value
    for field in dataclasses.fields(ServiceLimits)
  }
  limits = ServiceLimits(**log_values)
  logging.set_verbosity(logging.ERROR)
  listening = server.bound(values.host, values.port)
  set_up_jax()
  served = [
    runs.Served(
      place,
      checkpoint=values.checkpoint,
      parser=values.parser,
      decode=search_flags.decode_of(values, place.folders[0]),
    )
    for place in places
  ]
  service = Service(served, limits, max_sentences=values.together)
  for one in served:
    if why := one.reading.why_no_parser:
      print(f"{one.name}: no raw text is parsed: {why}", file=sys.stderr)

  url = server.url_of(listening)

  def compiled(done: int, sizes: int) -> None:
    service.compiled = (done, sizes)  # before a line that says so is read
    if not done:
      print(
        f"listening at {url}; compiling {sizes} sizes, until then it answers "
        "503; --compile 0 starts without",
        file=sys.stderr,
        flush=True,
      )

  def ready() -> None:
    names = ", ".join(service.runs)
    print(f"serving {names} at {url}", flush=True)

  policy = NetworkPolicy(values.host, values.allowed_hosts, values.origins)
  server.serve(
    server.made(service, policy, proxies=",".join(values.proxies)),
    listening,
    prepare=lambda: warm.prepare(
      [*service.worker.desks.values()], values.compile, compiled
    ),
    ready=ready,
  )


def define_flags() -> None:
  """Those of the command."""
  flags.DEFINE_multi_string(
    "run", [], "A run; stands alone, as in: serve RUN [RUN...]."
  )
  flags.DEFINE_string(
    "host", "127.0.0.1", "Address to listen at; 0.0.0.0: all."
  )
  number_flag("port", 8080, Range(0, 65535), "Port; 0: a free one.")
  flags.DEFINE_string(
    "checkpoint", "", '"best", "last" or a step, of all runs.'
  )
  run_flags.define_parser()
  search_flags.define()
  for name, (field, hint) in fields_of(ServiceLimits).items():
    details, default = metadata(field), getattr(ServiceLimits, name)
    number_flag(
      name,
      default,
      range_of(ServiceLimits, name),
      details.meaning,
      hint.__origin__,
    )
  number_flag(
    "together",
    0,
    Range(0, 2**16),
    "Sentences of all requests that are translated together, at most; 0: as "
    "config.decode.sentences says, on each device.",
  )
  number_flag(
    "compile",
    64,
    Range(0, 2**16),
    "Programs for sentences of up to so many subwords are compiled before the "
    "first answer; 0: none, each is when a sentence first needs it.",
  )
  list_flag(
    "allowed_hosts",
    [],
    "Names by which clients call the server, as in translate.example.org or "
    "*.example.org, beside localhost and --host.",
  )
  list_flag(
    "origins",
    [],
    "Pages elsewhere that may ask, as in https://example.org (CORS).",
  )
  list_flag(
    "proxies", [], "Addresses of proxies, whose X-Forwarded-For is believed."
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main, word="run")
