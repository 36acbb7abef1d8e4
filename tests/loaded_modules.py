"""Heavy packages that a process has loaded; this module does not load them."""

import sys

HEAVY = ("jax", "jaxlib", "flax", "optax", "orbax", "tensorflow", "torch")


def heavy(thing=None):
  """Returns the heavy packages that this process has loaded."""
  return [name for name in HEAVY if name in sys.modules]
