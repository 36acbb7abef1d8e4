"""Exceptions whose messages are for users.

Checks of files, lines, options and checkpoints raise `InputError` with a
message that names the location, the value and the remedy. Commands print it
without a traceback and exit with status 2 (`jaxsyn.cli`); in a notebook it is
an ordinary exception.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
  """Error of invalid user input; the message names its location and value."""


class StoreError(Exception):
  """Error of an object store that is unreachable or rejects a request.

  It is neither an OSError nor a ValueError, which callers handle as a missing
  or corrupt file.
  """


def did_you_mean(name: str, known: Iterable[str]) -> str:
  """Returns a message part with the closest known name and all known names.

  >>> did_you_mean("simga", ["heads", "sigma"])
  "Did you mean 'sigma'? Known: heads, sigma."
  """
  known = sorted(known)
  close = difflib.get_close_matches(name, known, n=1)
  guess = f"Did you mean {close[0]!r}? " if close else ""
  return f"{guess}Known: {', '.join(known) or 'none'}."
