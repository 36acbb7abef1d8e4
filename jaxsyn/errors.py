"""The one exception whose message is written for the user.

Every check at a door (a file, a line, a config field, a checkpoint) raises
`InputError` with one message that names the place, the value and what to do.
The entry points print it without a traceback and exit with status 2
(`jaxsyn.cli`); a notebook sees an ordinary exception.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
  """Something given by the user is wrong; the message says what and where."""


class StoreError(Exception):
  """A store of objects refuses or cannot be reached; the message says which.

  Neither OSError nor ValueError: who catches those takes them for a file that
  is missing or damaged, and nothing says that it is.
  """


def did_you_mean(name: str, known: Iterable[str]) -> str:
  """The end of a message about an unknown name: a guess, then the choices.

  >>> did_you_mean("simga", ["heads", "sigma"])
  "Did you mean 'sigma'? Known: heads, sigma."
  """
  known = sorted(known)
  close = difflib.get_close_matches(name, known, n=1)
  guess = f"Did you mean {close[0]!r}? " if close else ""
  return f"{guess}Known: {', '.join(known) or 'none'}."
