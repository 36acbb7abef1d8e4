"""The model card: README.md, with the block of metadata that hubs read.

Only what the run knows is said. What its owner must say, above all under which
licence it is given, is marked and never guessed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from jaxsyn.data.store import layout
from jaxsyn.errors import InputError
from jaxsyn.exporting.model import ExportedModel
from jaxsyn.scoring import selection
from jaxsyn.storage import checksums, files
from jaxsyn.trained import warm_start
from jaxsyn.trained.exported import is_exported
from jaxsyn.training.sums import named

FILE = "README.md"
FILL_IN = "FILL-IN"


def text(model: ExportedModel, digest: str) -> str:
  """The whole card.

  Args:
    model: what is exported.
    digest: SHA-256 of its parameters' file.
  """
  data, run = model.run.config.data, model.run
  size = sum(
    math.prod(x.shape) for x in named(model.parameters.params).values()
  )
  licence = model.licence or FILL_IN
  tags = ["jax", "flax", "syntax-aware", run.config.system]
  lines = [
    "---",
    "library_name: jaxsyn",
    "pipeline_tag: translation",
    f"language: [{data.source_language}, {data.target_language}]",
    f"license: {json.dumps(licence)}",
    f"tags: {json.dumps(tags)}",
    "---",
    "",
    f"# {data.source_language} to {data.target_language}, system "
    f"`{run.config.system}`",
    "",
    f"A model of jaxsyn for translation, {size:,} parameters: {model.title}.",
    "",
    "```python",
    "from jaxsyn.session import Session",
    "",
    'session = Session("hub:OWNER/NAME")  # or the path of this folder',
    '((best, *rest),) = session(["A sentence to be translated ."])',
    "print(best.text)",
    "```",
    "",
    "## Licence",
    "",
    model.licence
    or f"{FILL_IN}: whoever publishes this model must say under which licence, "
    "here and in the block above. It depends on the licences of the data and, "
    "where its file is here, of the parser.",
    "",
    "## Data",
    "",
    f"`{data.name}`; {data.homepage if data.homepage != 'none' else 'no page given'}.",
    "",
    "| split | pairs |",
    "|---|---:|",
    *(
      f"| {name} | {split['examples']:,} |"
      for name, split in run.manifest["splits"].items()
    ),
    "",
    *_citation(data.citation),
    *_parser(model),
    "## Scores",
    "",
    _score(model.parameters.score, data.validation),
    "",
    *_origin(model),
    "## Files",
    "",
    f"`model.safetensors`, SHA-256 `{digest}`; `config.json` has every option of "
    "the training, `manifest.json` the sums of the data.",
    "",
  ]
  return "\n".join(lines)


def _citation(citation: str) -> Iterator[str]:
  if citation:
    yield from ("```bibtex", citation, "```", "")


def _parser(model: ExportedModel) -> Iterator[str]:
  """What trees it reads, if any."""
  if len(model.features) < 2:
    yield from ("It reads no trees.", "")
    return
  feature_list = ", ".join(f"`{feature}`" for feature in model.features[1:])
  parser = model.run.manifest["parser"].get("source") or {}
  parser_file = layout.parser_file(
    model.run.workdir, model.run.manifest, "source"
  )
  sentence = "Its trees came as CoNLL-U, so that it has no parser."
  if parser_file:
    where = "is here" if model.parser else "is not here: name it (`--parser`)"
    sentence = f"The UDPipe model, SHA-256 `{parser['sha256']}`, {where}."
  yield from (
    f"It reads the tree of the source ({feature_list}). {sentence}",
    "",
  )


def _score(score: Mapping[str, Any] | None, split: str) -> str:
  if not score:
    return (
      "None was measured for these parameters: `python -m jaxsyn.score` gives "
      "them with signatures."
    )
  return (
    f"{selection.title(score)} on `{split}`, by which these parameters were "
    f"chosen: {score['score']:.2f} (log-likelihood of a target subword "
    f"{score['log_likelihood']:.3f}). Scores of test sets: `python -m "
    "jaxsyn.score` gives them with signatures."
  )


def _origin(model: ExportedModel) -> Iterator[str]:
  """Whose parameters the training began with."""
  folder = model.run.workdir
  path = folder / warm_start.FILE
  # An exported model has no such file.
  started = model.run.config.train.start.run and not is_exported(folder)
  if started or files.is_file(path):
    try:
      origin = checksums.verify_checksum(files.read_json(path))
      system, checkpoint, digest = (
        origin[name] for name in ("system", "checkpoint", "sha256")
      )
    except (OSError, ValueError, KeyError) as error:
      raise InputError(
        f"{path} is corrupt ({str(error).rstrip('.')}). Restore it from a copy."
      ) from None
    yield from (
      "## Origin",
      "",
      f"The training began with parameters of another run (system "
      f"`{system}`, {checkpoint}), SHA-256 `{digest}`.",
      "",
    )
