"""Trained runs: run directories, and sessions that translate with them.

Reading order: `workdir` (a run directory), `parameters` (its checkpoints, or those of
an `exported` model), `member` and `session`; `inputs`, `alignments`, `finishing` and
`forcing` for the commands; `warm_start` with `matching`, and `teacher`, for training.
"""

from jaxsyn.session.session import Session

__all__ = ["Session"]
