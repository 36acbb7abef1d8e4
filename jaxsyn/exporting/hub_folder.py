"""Format "safetensors": a folder for the Hugging Face Hub and for `Session`.

`jaxsyn.session.exported` describes its files. The model card, README.md, contains
only facts from the files of the run. The license is never guessed: without --license, it
is marked to be filled in.
"""

from __future__ import annotations

import json
import math
import pathlib

from jaxsyn.config import as_dict
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.exporting import ExportedModel
from jaxsyn.models.contract import arrays_by_name
from jaxsyn.scoring import selection
from jaxsyn.session import exported, warm_start, workdir
from jaxsyn.storage import files

CARD = "README.md"
_FILL_IN = "FILL-IN"


def write(model: ExportedModel, folder: pathlib.Path) -> list[str]:
  """Writes the model into a new folder; returns messages for the user.

  Raises:
    InputError: A file of the run is missing or corrupt.
  """
  run = model.run
  parser_file = manifests.parser_file(run.workdir, run.manifest, "source")
  reads_trees = len(run.source_features) > 1
  has_parser = bool(reads_trees and parser_file and model.parser)
  vocabularies = {
    entry["file"] for entry in run.manifest["vocabulary"].values()
  }
  for name, digest in manifests.model_hashes(run.manifest).items():
    # The parser of the target side is needed for training only.
    is_source_parser = parser_file is not None and parser_file.name == name
    if name not in vocabularies and not (has_parser and is_source_parser):
      continue
    source = run.workdir / name
    if not workdir.is_intact(source, digest):
      raise InputError(
        f"{source} is missing or does not have the checksum in "
        f"{manifests.FILE}. Run the training command again, which restores it "
        f"from {run.config.data.directory}."
      )
    files.copy(source, folder / name)
  digest = exported.write(folder, model.parameters)
  manifests.write(folder, run.manifest)
  workdir.write_record(folder / workdir.CONFIG, as_dict(run.config))
  files.write_text(folder / CARD, _card(model, digest))
  messages = [
    f"{model.parameters.title}; SHA-256 of {exported.ARRAYS}: {digest}"
  ]
  if not model.license:
    messages.append(
      f"{CARD} has no license yet: fill it in, or set --license, before you "
      "publish the model. Data and parser have their own licenses."
    )
  if reads_trees and not has_parser:
    messages.append(
      "the parser is not included: translating raw text needs --parser."
    )
  return messages


def _card(model: ExportedModel, digest: str) -> str:
  """Returns the text of the model card.

  Args:
    model: The model.
    digest: SHA-256 of the parameters' file.
  """
  data, run = model.run.config.data, model.run
  shapes = [x.shape for x in arrays_by_name(model.parameters.params).values()]
  size = sum(math.prod(shape) for shape in shapes)
  system = run.config.system
  languages = data.source_language, data.target_language
  tags = ["jax", "flax", "syntax-aware", system]
  splits = "\n".join(
    f"| {name} | {split['examples']:,} |"
    for name, split in run.manifest["splits"].items()
  )
  license = model.license or (
    f"{_FILL_IN}: state the license here and in the block above before you "
    "publish this model. It depends on the licenses of the data and of the "
    "parser, if its file is included."
  )
  return f"""---
library_name: jaxsyn
pipeline_tag: translation
language: [{languages[0]}, {languages[1]}]
license: {json.dumps(model.license or _FILL_IN)}
tags: {json.dumps(tags)}
---

# {languages[0]} to {languages[1]}, system `{system}`

A translation model trained with jaxsyn, {size:,} parameters: {model.parameters.title}.

```python
from jaxsyn.session import Session

session = Session("hub:OWNER/NAME")  # or the path of this folder
((best, *rest),) = session(["A sentence to be translated ."])
print(best.text)
```

## License

{license}

## Data

`{data.name}`.

| split | pairs |
|---|---:|
{splits}

{_trees(model)}

## Scores

{_score(model)}

{_origin(model)}## Files

`model.safetensors`, SHA-256 `{digest}`; `config.json` has all options of \
the training, `manifest.json` the checksums of the data.
"""


def _trees(model: ExportedModel) -> str:
  """Returns the model card's sentences about trees and their parser."""
  run = model.run
  features = ", ".join(f"`{feature}`" for feature in run.source_features[1:])
  if not features:
    return "It reads no trees."
  sentence = "Its trees were CoNLL-U files, so there is no parser."
  if manifests.parser_file(run.workdir, run.manifest, "source"):
    where = "is included" if model.parser else "is not included (`--parser`)"
    digest = run.manifest["parser"]["source"]["sha256"]
    sentence = f"The UDPipe model, SHA-256 `{digest}`, {where}."
  return f"It reads the dependency tree of the source ({features}). {sentence}"


def _score(model: ExportedModel) -> str:
  score = model.parameters.score
  if not score:
    return (
      "None was measured for these parameters; `jaxsyn score` computes them with "
      "signatures."
    )
  return (
    f"{selection.title(score)} on `{model.run.config.data.validation}`, the "
    f"criterion for these parameters: {score['score']:.2f} (log-likelihood of a "
    f"target subword {score['log_likelihood']:.3f}). Scores of test sets: "
    "`jaxsyn score` computes them with signatures."
  )


def _origin(model: ExportedModel) -> str:
  """Returns the model card's section on a warm start from another run."""
  folder = model.run.workdir
  path = folder / warm_start.FILE
  # An exported model does not have the file.
  is_warm = model.run.config.train.start.run and not exported.is_exported(
    folder
  )
  if not is_warm and not files.is_file(path):
    return ""
  origin = workdir.read_record(path, "Restore it from a copy.")
  return (
    "## Origin\n\n"
    "Training started from the parameters of another run (system "
    f"`{origin['system']}`, {origin['checkpoint']}), SHA-256 "
    f"`{origin['sha256']}`.\n\n"
  )
