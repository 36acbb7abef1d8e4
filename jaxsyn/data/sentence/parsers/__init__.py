"""Dependency parsers: UDPipe, spaCy and Stanza.

`config.prepare.parse.source.parser` selects the parser of the source side. The
package of a parser is imported when the parser is opened. A new parser needs a file
with a `ParserSpec` and a `Parser`, and an entry in PARSERS.
"""

from __future__ import annotations

from jaxsyn.data.sentence.parsers.parser import Parser, ParserSpec
from jaxsyn.data.sentence.parsers.spacy import SpacySpec
from jaxsyn.data.sentence.parsers.stanza import StanzaSpec
from jaxsyn.data.sentence.parsers.udpipe import UDPipeSpec
from jaxsyn.options import Registry

PARSERS: Registry[ParserSpec] = Registry(
  "parser",
  {spec.kind: spec for spec in (UDPipeSpec, SpacySpec, StanzaSpec)},
)

__all__ = ["PARSERS", "Parser", "ParserSpec"]
