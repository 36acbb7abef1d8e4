"""Why a request is not answered: a status, and a message for who asked."""

from __future__ import annotations


class HTTPError(Exception):
  """A request is refused.

  Attributes:
    status: of HTTP.
    message: what is wrong, and what to do.
    retry_after: seconds after which it may be taken; None: the same never is.
  """

  def __init__(
    self,
    status: int,
    message: str,
    *,
    retry_after: float | None = None,
  ):
    super().__init__(message)
    self.status, self.message = status, message
    self.retry_after = retry_after
