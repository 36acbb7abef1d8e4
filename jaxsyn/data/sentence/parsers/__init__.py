"""Parsers: what makes trees of raw lines, each by itself in a file.

A side of a data set has one, config.prepare.parse.source.parser. Packages are
imported where a parser is opened. A new one is a file with a `ParserSpec` and a
`Parser`, and a line in PARSERS.
"""

from __future__ import annotations

from jaxsyn.data.sentence.parsers.command import CommandSpec
from jaxsyn.data.sentence.parsers.parser import Parser, ParserSpec
from jaxsyn.data.sentence.parsers.spacy import SpacySpec
from jaxsyn.data.sentence.parsers.stanza import StanzaSpec
from jaxsyn.data.sentence.parsers.udpipe import UDPipeSpec
from jaxsyn.data.sentence.parsers.udpipe_service import UDPipeServiceSpec
from jaxsyn.options import Registry

PARSERS: Registry[ParserSpec] = Registry(
  "parser",
  {
    spec.kind: spec
    for spec in (
      *(UDPipeSpec, UDPipeServiceSpec, SpacySpec, StanzaSpec),
      CommandSpec,
    )
  },
)

__all__ = ["PARSERS", "Parser", "ParserSpec"]
