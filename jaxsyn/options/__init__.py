"""Options: what a config may say, each said once.

An option is a field of a frozen dataclass: type and bounds in its annotation
(`bounds`), default, meaning, unit and whether a resumed run may change it in
`option`. Options that belong together are a section, a dataclass of its own;
those of a choice (a part, a schedule) are the spec of the choice in a
`Registry` (`choices`). From the fields come the ConfigDict of `configs/base.py`
(`config_dict`), the check at the door (`from_config`), what may change on a resume
(`changeable`) or between runs that are compared (`neutral`), and help and reference (`describe`).

Reading order: `bounds`, `fields`, `choices`, `described`.
"""

from __future__ import annotations

from jaxsyn.options.bounds import Range
from jaxsyn.options.described import (
  OptionDescription,
  describe,
  neutral_options,
  resumable_options,
  text,
)
from jaxsyn.options.fields import (
  CHECKPOINT_MODE,
  COMPLETE_MODE,
  RESULT_MODE,
  ROOT,
  ConfigPath,
  ValidationMode,
  as_dict,
  config_dict,
  flat,
  from_config,
  option,
  range_of,
  section,
  with_default,
)
from jaxsyn.options.registry import (
  Choice,
  NamedSpecs,
  Registry,
  choice,
  choices,
  unused_option_error,
)

__all__ = [
  "CHECKPOINT_MODE",
  "COMPLETE_MODE",
  "RESULT_MODE",
  "ROOT",
  "Choice",
  "ConfigPath",
  "NamedSpecs",
  "OptionDescription",
  "Range",
  "Registry",
  "ValidationMode",
  "as_dict",
  "choice",
  "choices",
  "config_dict",
  "describe",
  "flat",
  "from_config",
  "neutral_options",
  "option",
  "range_of",
  "resumable_options",
  "section",
  "text",
  "unused_option_error",
  "with_default",
]
