"""Serves trained runs over HTTP: JSON for programs, and a web page.

  jaxsyn serve runs/pascal
  jaxsyn serve runs/pascal baseline=runs/transformer@best --port 8000
  curl -s localhost:8080/translate -d '{"text": "Two men play football."}'

A run is FOLDER, FOLDER@CHECKPOINT, hub:OWNER/NAME, or NAME=FOLDER; commas
join several to an ensemble. The server first prints its address to standard error,
compiles programs for common sizes (minutes the first time; --compile 0 skips
this), and then prints the address to standard output and accepts requests;
GET /health reports the state. On SIGTERM or Ctrl-C it completes running
requests and exits.
Paths, limits, and how to run it behind a proxy: docs/serving.md.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from absl import flags, logging

from jaxsyn import cli
from jaxsyn.decode import run_flags
from jaxsyn.errors import InputError
from jaxsyn.options import Range, fields_of, metadata, range_of
from jaxsyn.options.flags import list_flag, number_flag
from jaxsyn.serving.requests import ServiceLimits
from jaxsyn.session import search_flags


def _main(values: flags.FlagValues) -> None:
  try:
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
  except ImportError as error:
    raise InputError(
      f"serving needs the package {error.name}: pip install -e '.[serve]'"
    ) from None
  from jaxsyn.serving import runs, server
  from jaxsyn.serving.service import Service
  from jaxsyn.training.runtime import set_up_jax

  locations = runs.run_locations(values.run)
  limits: dict[str, Any] = {
    field.name: values[field.name].value
    for field in dataclasses.fields(ServiceLimits)
  }
  hosts = server.host_names(values.host, values.allowed_hosts)
  logging.set_verbosity(logging.ERROR)
  sock = server.listen(values.host, values.port)
  set_up_jax()
  served = [
    runs.ServedRun(
      name,
      folders,
      checkpoint=values.checkpoint,
      parser=values.parser,
      decode=search_flags.decode_of(values, folders[0]),
    )
    for name, folders in locations.items()
  ]
  for run in served:
    if why := run.readers.why_no_parser:
      print(f"{run.name}: no raw text is parsed: {why}", file=sys.stderr)
  service = Service(
    served, ServiceLimits(**limits), max_sentences=values.together
  )
  url = server.url_of(sock)
  if values.compile:
    print(
      f"listening at {url}; compiling programs, until then it answers 503; "
      "--compile 0 starts without",
      file=sys.stderr,
      flush=True,
    )
  server.serve(
    service,
    service.app(hosts, values.origins),
    sock,
    prepare=lambda: server.compile_programs(service, values.compile),
    on_ready=lambda: print(
      f"serving {', '.join(service.runs)} at {url}", flush=True
    ),
  )


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn serve`."""
  flags.DEFINE_multi_string(
    "run", [], "Run to serve; may be positional: serve RUN [RUN...]."
  )
  flags.DEFINE_string(
    "host", "127.0.0.1", "Address to listen on; 0.0.0.0: all addresses."
  )
  number_flag("port", 8080, Range(0, 65535), "Port; 0: a free one.")
  flags.DEFINE_string(
    "checkpoint", "", 'Checkpoint of all runs: "best", "last" or a step.'
  )
  run_flags.define_parser()
  search_flags.define()
  for name, (field, hint) in fields_of(ServiceLimits).items():
    number_flag(
      name,
      getattr(ServiceLimits, name),
      range_of(ServiceLimits, name),
      metadata(field).meaning,
      hint.__origin__,
    )
  number_flag(
    "together",
    0,
    Range(0, 2**16),
    "Maximum number of sentences, across all requests, that are translated "
    "together; 0: config.decode.sentences for each device.",
  )
  number_flag(
    "compile",
    64,
    Range(0, 2**16),
    "Maximum sentence length, in subwords, that is compiled for before "
    "requests are accepted; 0: compile when needed.",
  )
  list_flag(
    "allowed_hosts",
    [],
    "Host names accepted, such as translate.example.org or *.example.org, in "
    "addition to localhost and --host; with --host 0.0.0.0, any name by "
    "default.",
  )
  list_flag(
    "origins",
    [],
    "Web pages on other hosts that may read responses, such as "
    "https://example.org (CORS).",
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main, word="run")
