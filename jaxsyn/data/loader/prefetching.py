"""What is made in a thread before it is asked for.

After this file: `split`, which reads windows so; batches are made so as well.
"""

from __future__ import annotations

import collections
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
_NO_MORE: Any = object()


def prefetch(items: Iterator[T], depth: int) -> Generator[T, None, None]:
  """The same items, made in a thread up to `depth` before they are asked for.

  An exception of the maker is raised where the item would have come. Closing
  the generator ends the thread.
  """
  if depth <= 0:
    yield from items
    return
  pool = ThreadPoolExecutor(1, "batches")
  try:
    waiting = collections.deque(
      pool.submit(next, items, _NO_MORE) for _ in range(depth)
    )
    while (item := waiting.popleft().result()) is not _NO_MORE:
      waiting.append(pool.submit(next, items, _NO_MORE))
      yield item
  finally:
    pool.shutdown(cancel_futures=True)
