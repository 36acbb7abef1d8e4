"""Program that computes COMET scores in COMET's own Python environment.

`jaxsyn.scoring.comet` runs it by its path, as jaxsyn is not installed there. Its
argument is the model. It prints lines of JSON: first the version of COMET and facts
about the model, then a list of scores for each line of samples.
"""

import hashlib
import importlib.metadata
import json
import os
import sys


def checkpoint_of(model: str) -> str:
  """Returns a model's checkpoint path, after downloading it if necessary."""
  import comet

  if os.path.isdir(model):
    return os.path.join(model, "checkpoints", "model.ckpt")
  return model if os.path.exists(model) else comet.download_model(model)


def main() -> None:
  answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
  os.dup2(2, 1)  # output of libraries goes to stderr
  import comet
  import torch

  path = checkpoint_of(sys.argv[1])
  model = comet.load_from_checkpoint(path)
  sha256 = hashlib.sha256()
  with open(path, "rb") as file:
    while block := file.read(1 << 20):
      sha256.update(block)
  answer = {
    "version": importlib.metadata.version("unbabel-comet"),
    "sha256": sha256.hexdigest(),
    "references": bool(model.requires_references()),
  }
  print(json.dumps(answer), file=answers, flush=True)
  for line in sys.stdin.buffer:
    prediction = model.predict(
      json.loads(line),
      gpus=min(1, torch.cuda.device_count()),
      progress_bar=False,
    )
    print(json.dumps(list(prediction.scores)), file=answers, flush=True)


if __name__ == "__main__":
  del sys.path[0]  # modules of this directory have the names of packages
  main()
