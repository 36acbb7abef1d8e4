"""COMET at work, in the environment that has it: `jaxsyn.scoring.comet` runs it.

It is run by its path and imports nothing of jaxsyn, which that environment has
not. Its argument is the model. It answers with lines of JSON: first what model
that is, then, to each line of samples, a list of their scores.
"""

import hashlib
import json
import os
import sys

BLOCK = 1 << 20


def checkpoint_of(model: str) -> str:
  """The file of a model: itself, in a folder, or of this name and downloaded."""
  import comet

  if os.path.isdir(model):
    return os.path.join(model, "checkpoints", "model.ckpt")
  return model if os.path.exists(model) else comet.download_model(model)


def sha256_of(path: str) -> str:
  digest = hashlib.sha256()
  with open(path, "rb") as file:
    while block := file.read(BLOCK):
      digest.update(block)
  return digest.hexdigest()


def main() -> None:
  answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
  os.dup2(2, 1)  # what libraries print is no answer
  import comet
  import torch

  path = checkpoint_of(sys.argv[1])
  model = comet.load_from_checkpoint(path)
  answer = {
    "sha256": sha256_of(path),
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
  del sys.path[0]  # modules beside this one have the names of packages
  main()
