"""Trained runs: run directories, and sessions that translate with them."""

from jaxsyn.session.session import Session

__all__ = ["Session"]
