"""Readers of the code, links and headings of README, CONTRIBUTING and the guides."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
EXTENDING = sorted((ROOT / "docs" / "extending").glob("*.md"))
GUIDES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [README, CONTRIBUTING, *GUIDES, *EXTENDING]
NOT_RUN = re.compile(r"<!-- not (?:run|compared): (.+) -->")


@dataclasses.dataclass(frozen=True)
class Block:
  """A fenced block.

  Attributes:
    language: Language after the fence.
    code: Lines of the block.
    place: FILE:LINE, for messages.
    not_run: Reason, in the line above, not to run the block; "" to run it.
  """

  language: str
  code: str
  place: str
  not_run: str

  @property
  def file(self) -> str:
    """Path in the first line of the block; "" if it is not a file."""
    named = re.match(r"# ([\w/]+\.py)(, .*)?\n", self.code)
    return named[1] if named and self.language == "python" else ""

  def unlike(self, output: str) -> list[str]:
    """Returns the lines of a text block whose kind does not occur in an output.

    The kind of a line is its first two words, without numbers.
    """
    kinds = set(map(_kind, output.splitlines()))
    shown = [line for line in self.code.splitlines() if line != "..."]
    return [line for line in shown if _kind(line) not in kinds]


def blocks(path: pathlib.Path) -> list[Block]:
  """Returns the fenced blocks of a document in order."""
  collected: list[Block] = []
  lines = path.read_text(encoding="utf-8").splitlines()
  opened = None
  for i, line in enumerate(lines):
    assert not line.startswith(" ") or not line.lstrip().startswith("```"), line
    if not line.startswith("```"):
      continue
    if opened is None:
      opened = i
      continue
    why = NOT_RUN.fullmatch(lines[opened - 1])
    collected.append(
      Block(
        language=lines[opened][3:],
        code="\n".join(lines[opened + 1 : i]) + "\n",
        place=f"{path.relative_to(ROOT)}:{opened + 1}",
        not_run=why[1] if why else "",
      )
    )
    opened = None
  assert opened is None, f"{path}:{opened}: a block without an end"
  return collected


def _kind(line: str) -> str:
  return " ".join(re.sub(r"[-+\d.,:%]+", "0", line).split()[:2])


@functools.cache
def features() -> dict[str, tuple[set[str], set[str]]]:
  """Returns the features of docs/systems.md by system: all, and in translation."""
  page = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")
  rows = re.findall(r"^\| `(\w+)` \|.*\|(.*?)\|(.*?)\|$", page, re.MULTILINE)
  values = {
    name: (set(re.findall(r"`(\w+)`", all)), set(re.findall(r"`(\w+)`", item)))
    for name, all, item in rows
  }
  assert len(values) == len(rows), "a system has two rows"
  return values


def text(path: pathlib.Path) -> str:
  """Returns a document without its fenced blocks."""
  content = path.read_text(encoding="utf-8")
  return re.sub(r"^```.*?^```$", "", content, flags=re.DOTALL | re.MULTILINE)


def anchors(path: pathlib.Path) -> set[str]:
  """Returns the anchors of a document's headings, as GitHub makes them."""
  if included := re.search(r"^```\{include\} (\S+)$", path.read_text(), re.M):
    return anchors(path.parent / included[1])
  result: set[str] = set()
  for heading in re.findall(r"^#+ (.+)$", text(path), re.MULTILINE):
    plain = re.sub(r"[^\w\- ]", "", heading.lower())
    result.add(plain.strip().replace(" ", "-"))
  return result


def links(path: pathlib.Path) -> list[str]:
  """Returns the targets of the links and pictures in a document."""
  return re.findall(r"\]\(([^)\s]+)\)", text(path))
