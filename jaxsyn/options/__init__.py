"""Options of a config: fields of frozen dataclasses with types and help.

  @dataclasses.dataclass(frozen=True)
  class InverseSquareRoot(Schedule):
    warmup: Count = option(1000, "Updates until the peak.", unit="updates")

The annotation has the type and the bounds, `option` the default, the help text
and the unit. A dataclass whose options belong together is a section; it is
defined in the package that uses it, and may contain sections.

A `Registry` names the dataclasses that an option can select, such as schedules,
losses or modifiers. Two types of fields select from it:

  schedule: Schedule = choice(SCHEDULES, "inverse_sqrt", "Schedule of the ...")
  losses: NamedSpecs[Loss] = choices(LOSSES, "Terms of the objective.", ["nll"])

In a config, a `choice` field is a name, next to a section for each registered
choice that has options (`inverse_sqrt.warmup`). A `choices` field is a section
with one section for each selected name (`losses.nll.smoothing`). The value of a
`choice` field is an instance of the selected class; that of a `choices` field is
a tuple of (name, instance) pairs in the order of the registry.

`config_dict` makes the ConfigDict of a command line, `from_config` reads it
back and rejects unknown or invalid values by their dotted name, `as_dict` makes
JSON, and `describe` lists the options for help and documentation.
"""

from jaxsyn.options.bounds import Range
from jaxsyn.options.described import (
  describe,
  neutral_options,
  resumable_options,
  text,
  unused_option_error,
)
from jaxsyn.options.fields import (
  CHECKPOINT_MODE,
  ROOT,
  USER_MODE,
  Choice,
  ConfigPath,
  NamedSpecs,
  Registry,
  RegistryKey,
  ValidationMode,
  as_dict,
  choice,
  choices,
  config_dict,
  fields_of,
  flat,
  metadata,
  option,
  range_of,
  section,
  siblings,
  with_default,
)
from jaxsyn.options.reading import from_config

__all__ = [
  "CHECKPOINT_MODE",
  "ROOT",
  "USER_MODE",
  "Choice",
  "ConfigPath",
  "NamedSpecs",
  "Range",
  "Registry",
  "RegistryKey",
  "ValidationMode",
  "as_dict",
  "choice",
  "choices",
  "config_dict",
  "describe",
  "fields_of",
  "flat",
  "from_config",
  "metadata",
  "neutral_options",
  "option",
  "range_of",
  "resumable_options",
  "section",
  "siblings",
  "text",
  "unused_option_error",
  "with_default",
]
