"""UDPipe 2, by its REST service: LINDAT's, or a server of one's own.

Better trees than UDPipe 1's, by a network that wants a GPU, which the server has.
Lines go there presegmented, some in a request. What they say leaves this
machine: for text that must not, start a server of one's own.

Source: Straka 2018, "UDPipe 2.0 Prototype at CoNLL 2018 UD Shared Task";
https://lindat.mff.cuni.cz/services/udpipe/api-reference.php
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import pathlib
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from jaxsyn.data.sentence.align import shortened
from jaxsyn.data.sentence.parser_identity import Identity
from jaxsyn.data.sentence.parsers.parser import (
  Parser,
  ParserSpec,
  on_one_line,
  sentences,
  shared_out,
)
from jaxsyn.data.store.fetch import Download
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Count, Range

_REFUSED = http.HTTPStatus.BAD_REQUEST  # what is sent is at fault
# Of an answer: a line has 5,000 characters, and a word of CoNLL-U some 100 bytes.
_MOST = 1 << 28
_WAIT, _LONGEST_WAIT = 1.0, 60.0  # seconds before the first try again; the most
_PROBE = "a"  # a line that every model can parse
_GENERATOR = re.compile(r"^# generator = ([^,\n]+)", re.MULTILINE)


class _Refused(Exception):
  """The server says that something is wrong with what was sent."""


class UDPipeService(Parser):
  """A model of a UDPipe 2 server.

  Attributes:
    spec: address, model and patience.
  """

  def __init__(self, spec: UDPipeServiceSpec):
    """Asks the server for its model.

    Raises:
      InputError: no server answers there, or it has no such model.
    """
    self.spec = spec
    _check_address(spec.url)
    try:
      answer = self._answer([_PROBE])
    except _Refused as error:
      raise self._no_model(error) from None
    self._model = str(answer["model"])
    told = _GENERATOR.search(answer["result"])
    self._version = told[1] if told else ""

  @property
  def identity(self) -> Identity:
    return Identity(self.spec.kind, self._model, version=self._version)

  def _texts(self, lines: Sequence[str]) -> list[str]:
    size, found = self.spec.batch, []
    for start in range(0, len(lines), size):
      found += self._batch(lines[start : start + size])
    return found

  def _batch(self, lines: Sequence[str]) -> list[str]:
    """CoNLL-U of each of lines that go together, if that is possible."""
    try:
      trees = self._trees(lines)
    except _Refused as error:
      if len(lines) == 1:
        # A line may have too many words for the server; it must still work.
        try:
          self._answer([_PROBE])
        except _Refused:
          raise self._no_model(error) from None
        return [""]
    else:
      if len(lines) == 1:
        return ["".join(trees)]
      try:
        if shares := shared_out(trees, lines):
          return shares
      except InputError as error:
        raise self._error(f"sent no CoNLL-U ({error})") from None
    # Which of them is at fault, and which trees are whose, one by one.
    return [text for line in lines for text in self._batch([line])]

  def _trees(self, lines: Sequence[str]) -> list[str]:
    answer = self._answer(lines)
    if answer["model"] != self._model:
      raise self._error(
        f"has parsed with the model {answer['model']} and not {self._model}; "
        "prepare the data again"
      )
    return sentences(answer["result"])

  def _answer(self, lines: Sequence[str]) -> dict[str, Any]:
    """What the server says of lines; tried again while it may get better.

    Raises:
      InputError: there is no answer, or none that is UDPipe's.
      _Refused: the server refuses these lines, or the model.
    """
    data = {
      "model": getattr(self, "_model", self.spec.model),
      "tokenizer": "presegmented",
      "tagger": "",
      "parser": "",
      "output": "conllu",
      "data": "".join(f"{on_one_line(line)}\n" for line in lines),
    }
    wait = _WAIT
    for tries_left in reversed(range(self.spec.retries + 1)):
      try:
        return self._once("process", data)
      except urllib.error.HTTPError as error:
        with error:
          said = error.read(1 << 12).decode(errors="replace").strip()
        if error.code == _REFUSED:
          raise _Refused(said) from None
        reason = f"answers {error.code} {error.reason} {shortened(said)}"
        again = error.code >= 500 or error.code in (408, 429)
      except (OSError, http.client.HTTPException, ValueError) as error:
        reason = f"gives no whole answer ({error or type(error).__name__})"
        again = True
      if not again or not tries_left:
        first = shortened(lines[0])
        raise self._error(
          f"{reason}, for {len(lines)} lines from {first}, after "
          f"{self.spec.retries - tries_left + 1} tries of "
          f"{self.spec.timeout:g} s at most. Run the same command again later: "
          "what is parsed stays"
        )
      time.sleep(wait)
      wait = min(2 * wait, _LONGEST_WAIT)
    raise AssertionError("the last try ends in an answer or an error")

  def _once(self, method: str, data: Mapping[str, str]) -> dict[str, Any]:
    """One request; ValueError for an answer that is not the service's."""
    url = f"{self.spec.url.rstrip('/')}/{method}"
    body = urllib.parse.urlencode(data).encode() if data else None
    request = urllib.request.Request(url, body, {"User-Agent": "jaxsyn"})
    with urllib.request.urlopen(request, timeout=self.spec.timeout) as answer:
      page = json.loads(answer.read(_MOST))
    fields = ("model", "result") if data else ("models",)
    if not isinstance(page, dict) or not all(name in page for name in fields):
      raise ValueError(f"its JSON has no {' and '.join(fields)}")
    return page

  def _no_model(self, error: _Refused) -> InputError:
    """That there is no such model, and which there are."""
    name = getattr(self, "_model", self.spec.model)
    guess = ""
    try:
      models = self._once("models", {})["models"]
      if name not in models:
        guess = f" {did_you_mean(name, models)}"
    except (OSError, http.client.HTTPException, ValueError):
      pass
    return self._error(
      f"does not parse with the model {name!r} ({error})", guess
    )

  def _error(self, what: str, more: str = "") -> InputError:
    return InputError(f"the UDPipe server {self.spec.url} {what}.{more}")


@dataclasses.dataclass(frozen=True)
class UDPipeServiceSpec(ParserSpec):
  """UDPipe 2, by the REST service of LINDAT or of a server of one's own."""

  kind: ClassVar[str] = "udpipe_service"

  url: str = option(
    "https://lindat.mff.cuni.cz/services/udpipe/api",
    "Address of the service, without /process. That of LINDAT is free of charge "
    "for research; its models are CC BY-NC-SA.",
  )
  model: str = option(
    "",
    "As the service names it; what it answers with is kept, version and all. "
    "Empty: the language of the side.",
  )
  batch: Count = option(64, "Sent in a request.", unit="lines")
  timeout: Annotated[float, Range(0.01, 86400)] = option(
    120.0, "Without an answer, until a request is sent again.", unit="seconds"
  )
  retries: Annotated[int, Range(0, 100)] = option(
    5, "Of a request, after 1, 2, 4, ... seconds; then it is an error."
  )

  @property
  def side_effects(self) -> str:
    return f"sends text to {self.url}"

  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, Download],
  ) -> UDPipeServiceSpec:
    try:
      asked = dataclasses.replace(self, model=self.model or language)
      # Under its whole name, lest a newer one take its place meanwhile.
      return dataclasses.replace(self, model=asked.open().identity.model)
    except InputError as error:
      raise InputError(f"{error} See {at}.model and {at}.url.") from None

  def with_identity(self, identity: Identity) -> UDPipeServiceSpec:
    return dataclasses.replace(self, model=identity.model)

  def at(self, place: str) -> UDPipeServiceSpec:
    return dataclasses.replace(self, url=place)

  def open(self, sha256: str = "") -> UDPipeService:
    return UDPipeService(self)


def _check_address(url: str) -> None:
  parts = urllib.parse.urlsplit(url)
  if parts.scheme not in ("http", "https") or not parts.hostname:
    raise InputError(f"{url!r} is no address of http or https.")
