"""Several processes at work on one thing: they join, agree and end together.

JAX connects them and moves the arrays (`jax.distributed`, GSPMD, Orbax). What is left
to a program: to join before anything else is done with JAX, to decide together
what each finds out at another time (a signal, the clock), and to go at once where
one is gone, since the others wait for it.

Before this folder: nothing. After it: everything that asks which process this is.
"""

from jaxsyn.training.hosts.agree import (
  POLL,
  Meetings,
  agreed,
  by_the_first,
  check_same,
  check_shared,
  everyone,
  meet,
  until,
)
from jaxsyn.training.hosts.end import together
from jaxsyn.training.hosts.join import check_joined, define_flags, join

__all__ = [
  "POLL",
  "Meetings",
  "agreed",
  "by_the_first",
  "check_joined",
  "check_same",
  "check_shared",
  "define_flags",
  "everyone",
  "join",
  "meet",
  "together",
  "until",
]
