"""Prints a script by which a shell completes the words of `jaxsyn`.

  source <(jaxsyn completion bash)                                  # ~/.bashrc
  jaxsyn completion zsh > "${fpath[1]}/_jaxsyn"
  jaxsyn completion fish > ~/.config/fish/completions/jaxsyn.fish

The script starts nothing: commands, flags, settings and systems stand in it as
they are now. Keep it in a file, for to make it takes seconds.
"""

from __future__ import annotations

import importlib
import string

from absl import flags

from jaxsyn import addresses, cli
from jaxsyn.commands import COMMANDS
from jaxsyn.configs import systems
from jaxsyn.errors import InputError


def script(shell: str) -> str:
  """The script for bash, zsh or fish."""
  return SHELLS[shell]()


def known_flags(command: str) -> dict[str, str]:
  """The flags of a command: name -> meaning, its first sentence."""
  module = importlib.import_module(COMMANDS[command].module)
  before = {*flags.FLAGS}
  module.define_flags()
  found = {n: flags.FLAGS[n].help or "" for n in {*flags.FLAGS} - before}
  for name in found:  # the next command may have one of the same name
    delattr(flags.FLAGS, name)
  return {
    name: " ".join(text.split()).partition(". ")[0]
    for name, text in sorted(found.items())
  }


def settings() -> list[str]:
  """What may follow --config, without a system; of papers with each task."""
  found = []
  for name in addresses.names():
    tasks = getattr(cli.module_of(name), "TASKS", ())
    found += [f"{name}:{task}" for task in tasks] or [name]
  return found


_BASH = string.Template(r"""# bash completion of jaxsyn
_jaxsyn() {
  # Whole words, which bash parts at ":" and "=" too.
  local line=$${COMP_LINE:0:COMP_POINT} word value flags
  local -a words
  read -ra words <<< "$$line"
  word=$${line##*[[:space:]]}
  [[ -n $$word ]] && unset "words[-1]"
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($$(compgen -W "$commands --help --version" -- "$$word"))
    return
  fi
  if [[ $$word == --config=* || $${words[-1]} == --config ]]; then
    value=$${word#--config=}
    if [[ $$value == *:* ]]; then
      # Of a paper first a task.
      COMPREPLY=($$(compgen -W "$settings" -- "$$value"))
      [[ -z $${COMPREPLY[0]} ]] &&
        COMPREPLY=($$(compgen -P "$${value%:*}:" -W "$systems" -- "$${value##*:}"))
    else
      COMPREPLY=($$(compgen -W "$settings" -- "$$value")
        $$(compgen -f -X '!*.py' -- "$$value") $$(compgen -d -S / -- "$$value"))
    fi
    compopt -o nospace
    # What stands before the last ":" or "=" is a word of its own to bash.
    [[ $$value == *:* && $$COMP_WORDBREAKS == *:* ]] &&
      COMPREPLY=("$${COMPREPLY[@]#"$${value%:*}:"}")
    return
  fi
  case $${words[1]} in
$cases
  esac
  if [[ $$word == -* ]]; then
    COMPREPLY=($$(compgen -W "$$flags --help" -- "$$word"))
  elif [[ $${words[1]} == completion ]]; then
    COMPREPLY=($$(compgen -W "$shells" -- "$$word"))
  fi
}
complete -o default -F _jaxsyn jaxsyn
""")


def _bash() -> str:
  cases = (
    f'    {name}) flags="{" ".join(f"--{f}" for f in known_flags(name))}" ;;'
    for name in COMMANDS
  )
  return _BASH.substitute(
    commands=" ".join(COMMANDS),
    settings=" ".join(settings()),
    systems=" ".join(systems.SYSTEMS),
    shells=" ".join(SHELLS),
    cases="\n".join(cases),
  )


_ZSH = string.Template(r"""#compdef jaxsyn
_jaxsyn_config() {
  local -a known
  known=($settings)
  if compset -P '*:'; then
    # Of a paper first a task.
    local before=$${IPREFIX#--config=}
    known=($${$${(M)known:#$$before*}#$$before})
    if (($$#known)); then
      compadd -S '' -a known
    else
      compadd $systems
    fi
  else
    known=($${known//:*/})
    compadd -S '' -a known
    _files -g '*.py'
  fi
}
_jaxsyn() {
  local -a commands
  commands=(
$commands
  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  shift words
  ((CURRENT--))
  case $$words[1] in
$cases
  esac
}
# Called by its name where it lies in fpath; else it was sourced.
if [[ $${funcstack[1]} == _jaxsyn ]]; then
  _jaxsyn "$$@"
else
  compdef _jaxsyn jaxsyn
fi
""")


def _zsh() -> str:
  def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"

  def flag(name: str, meaning: str) -> str:
    for sign in "[]:":
      meaning = meaning.replace(sign, f"\\{sign}")
    action = "_jaxsyn_config" if name == "config" else "_files"
    return quoted(f"--{name}=[{meaning}]:{name}:{action}")

  words = {
    "new": "'1:folder:_files -/'",
    "completion": f"'1:shell:({' '.join(SHELLS)})'",
  }
  cases = []
  for name in COMMANDS:
    rows = [flag(*pair) for pair in known_flags(name).items()]
    rows += [words[name]] if name in words else []
    cases.append(f"    {name}) _arguments " + " \\\n      ".join(rows) + " ;;")
  return _ZSH.substitute(
    commands="\n".join(
      "    " + quoted(f"{name}:{command.meaning}")
      for name, command in COMMANDS.items()
    ),
    settings=" ".join(settings()),
    systems=" ".join(systems.SYSTEMS),
    cases="\n".join(cases),
  )


def _fish() -> str:
  def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

  named = " ".join(settings())
  lines = [
    "# fish completion of jaxsyn",
    "function __jaxsyn_config",
    "  set -l word (commandline -ct | string replace -r '^--config=' '')",
    f"  printf '%s\\n' {named}",
    "  if string match -q '*:*' -- $word",
    f"    for system in {' '.join(systems.SYSTEMS)}",
    "      string replace -r '[^:]*$' $system -- $word",
    "    end",
    "  end",
    "  __fish_complete_suffix .py",
    "end",
  ]
  for name, command in COMMANDS.items():
    lines.append(
      "complete -c jaxsyn -n __fish_use_subcommand -f "
      f"-a {name} -d {quoted(command.meaning)}"
    )
    seen = f"-n '__fish_seen_subcommand_from {name}'"
    for flag, meaning in known_flags(name).items():
      value = "-x -a '(__jaxsyn_config)'" if flag == "config" else "-r"
      lines.append(
        f"complete -c jaxsyn {seen} -l {flag} {value} -d {quoted(meaning)}"
      )
    if name == "completion":
      lines.append(f"complete -c jaxsyn {seen} -f -a '{' '.join(SHELLS)}'")
  return "\n".join(lines) + "\n"


SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _main(values: flags.FlagValues) -> None:
  if not values.shell:
    raise InputError(f"say the shell: jaxsyn completion {'|'.join(SHELLS)}.")
  print(script(values.shell), end="")


def define_flags() -> None:
  """Those of the command."""
  flags.DEFINE_enum(
    "shell",
    None,
    list(SHELLS),
    "Which one; its name alone will do.",
    allow_override=True,  # `known_flags` defines it once more
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main, word="shell")
