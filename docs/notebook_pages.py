"""Generates a page for each notebook when the site is built.

Notebooks are stored without outputs. `python docs/notebook_pages.py` executes
all notebooks, which takes some minutes, and stores the copies with outputs in
`docs/executed` for later builds. Without such a copy, a page only has the code.
"""

from __future__ import annotations

import base64
import json
import pathlib
import re
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
NOTEBOOKS = HERE.parent / "notebooks"
EXECUTED = HERE / "executed"


def write(folder: pathlib.Path) -> None:
  """Writes the pages and their pictures."""
  folder.mkdir(parents=True, exist_ok=True)
  for path in sorted(NOTEBOOKS.glob("*.ipynb")):
    run = EXECUTED / path.name
    notebook = json.loads(path.read_text(encoding="utf-8"))
    if run.is_file():
      executed = json.loads(run.read_text(encoding="utf-8"))
      if _sources(executed) == _sources(notebook):  # else it was changed since
        notebook = executed
    text, pictures = page(notebook, path.stem)
    (folder / f"{path.stem}.md").write_text(text, encoding="utf-8")
    for name, content in pictures.items():
      (folder / name).write_bytes(content)


def page(notebook: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
  """A notebook as Markdown, and its pictures by the names of their files."""
  parts: list[str] = []
  pictures: dict[str, bytes] = {}
  for cell in notebook["cells"]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
      parts.append(re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", source))
      continue
    # Forced: lines for the shell are no Python.
    parts.append(f"```{{code-block}} python\n:force:\n\n{source}\n```")
    printed = ""
    for output in cell["outputs"]:
      data = output.get("data", {})
      if output.get("name") == "stdout":
        printed += "".join(output["text"])
      elif "image/png" in data:
        name = f"{stem}_{len(pictures)}.png"
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        parts.append(f"![]({name})")
      elif "image/svg+xml" in data:
        name = f"{stem}_{len(pictures)}.svg"
        pictures[name] = "".join(data["image/svg+xml"]).encode()
        parts.append(f"![]({name})")
    if printed:
      parts.append(f"```text\n{printed.rstrip()}\n```")
  return "\n\n".join(parts) + "\n", pictures


def _sources(notebook: dict[str, Any]) -> list[str]:
  return ["".join(cell["source"]) for cell in notebook["cells"]]


def execute() -> None:
  """Runs all notebooks, each where it lies, and keeps the copies."""
  import nbclient
  import nbformat

  EXECUTED.mkdir(exist_ok=True)
  for path in sorted(NOTEBOOKS.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(NOTEBOOKS)}}
    nbclient.NotebookClient(notebook, timeout=None, resources=place).execute()
    nbformat.write(notebook, EXECUTED / path.name)


if __name__ == "__main__":
  execute()
