"""Options: what a config may say, each said once.

An option is a field of a frozen dataclass: type and bounds in its annotation
(`bounds`), default, meaning, unit and whether a resumed run may change it in
`option`. Options that belong together are a section, a dataclass of its own;
those of a choice (a part, a schedule) are the spec of the choice in a `Table`
(`choices`). From the fields come the ConfigDict of `configs/base.py`
(`config_dict`), the check at the door (`from_config`), what may change on a resume
(`changeable`) or between runs that are compared (`neutral`), and help and reference (`describe`).

Reading order: `bounds`, `fields`, `choices`, `described`.
"""

from __future__ import annotations

from jaxsyn.options.bounds import Range
from jaxsyn.options.choices import (
  Choice,
  Named,
  Table,
  any_of,
  one_of,
  unchosen,
)
from jaxsyn.options.described import (
  Described,
  changeable,
  describe,
  neutral,
  text,
)
from jaxsyn.options.fields import (
  CONFIG,
  MEASURED,
  WHOLE,
  WRITTEN,
  At,
  Strictness,
  as_dict,
  config_dict,
  flat,
  from_config,
  option,
  other_default,
  range_of,
  section,
)

__all__ = [
  "CONFIG",
  "MEASURED",
  "WHOLE",
  "WRITTEN",
  "At",
  "Choice",
  "Described",
  "Named",
  "Range",
  "Strictness",
  "Table",
  "any_of",
  "as_dict",
  "changeable",
  "config_dict",
  "describe",
  "flat",
  "from_config",
  "neutral",
  "one_of",
  "option",
  "other_default",
  "range_of",
  "section",
  "text",
  "unchosen",
]
