"""Several processes at work on one thing: they join, agree and end together.

JAX connects them and moves the arrays (`jax.distributed`, GSPMD, Orbax). What is left
to a program: to join before anything else is done with JAX, to decide together
what each finds out at another time (a signal, the clock), and to go at once where
one is gone, since the others wait for it.

Before this folder: nothing. After it: everything that asks which process this is.
"""

from jaxsyn.training.hosts.coordination import (
  POLL_SECONDS,
  StopCoordinator,
  all_gather_json,
  barrier,
  check_same,
  check_shared,
  first_reason_on_any_host,
  on_main_process,
  wait_for_all,
)
from jaxsyn.training.hosts.join import check_joined, define_flags, join
from jaxsyn.training.hosts.shutdown import shutdown_together

__all__ = [
  "POLL_SECONDS",
  "StopCoordinator",
  "all_gather_json",
  "barrier",
  "check_joined",
  "check_same",
  "check_shared",
  "define_flags",
  "first_reason_on_any_host",
  "join",
  "on_main_process",
  "shutdown_together",
  "wait_for_all",
]
