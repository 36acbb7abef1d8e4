"""Which parser made the trees: what a manifest keeps of it, and compares.

Before this file: nothing. After it: `jaxsyn.data.sentence.parsers`, and the
manifest of `jaxsyn.data.store.manifests`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Identity:
  """Which parser it is: what manifests name and `translate` insists on.

  Attributes:
    kind: name in `jaxsyn.data.sentence.parsers.PARSERS`.
    model: its name, for people; where nothing of it has a hash, it decides.
    sha256: of its file, or of all its files together; "": it has none here.
    version: of what runs it, for people.
    options: name -> value of those that change trees.
  """

  kind: str
  model: str
  sha256: str = ""
  version: str = ""
  options: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @classmethod
  def of(cls, entry: Mapping[str, Any]) -> Identity:
    """That of a manifest's entry of a side."""
    return cls(
      entry.get("kind", "udpipe"),
      entry.get("name", ""),
      entry.get("sha256", ""),
      entry.get("version", ""),
      entry.get("options", {}),
    )

  def entry(self) -> dict[str, Any]:
    """The same for the manifest."""
    return {
      "kind": self.kind,
      "name": self.model,
      "sha256": self.sha256,
      "version": self.version,
      "options": dict(self.options),
    }

  @property
  def key(self) -> str:
    """What two that are the same have in common, and others not."""
    options = sorted(self.options.items())
    return json.dumps([self.kind, self.sha256 or self.model, options])

  @property
  def title(self) -> str:
    """Its model, and its kind where that is not a file's ending."""
    has_suffix = self.model.endswith(f".{self.kind}")
    return self.model if has_suffix else f"{self.kind} {self.model}"

  def __str__(self) -> str:
    options = [f"{k} {v}" for k, v in sorted(self.options.items())]
    version = [self.version] if self.version else []
    sha256 = [f"SHA-256 {self.sha256}"] if self.sha256 else []
    return f"{self.title} ({', '.join([*version, *options, *sha256])})"


def sha256_texts(texts: Iterable[str]) -> str:
  """Returns the SHA-256 of texts in order, which depends on their borders."""
  digest = hashlib.sha256()
  for text in texts:
    data = text.encode("utf-8")
    digest.update(len(data).to_bytes(8, "little") + data)
  return digest.hexdigest()
