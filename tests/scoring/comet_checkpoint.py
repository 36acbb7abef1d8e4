"""Writes a small COMET checkpoint with random weights: FOLDER.

Run by the Python of an environment with COMET; prints the path of the file.
"""

import pathlib
import sys

import pytorch_lightning
import tokenizers
import torch
import transformers
import yaml
from comet.models import RegressionMetric

TEXT = ["the dog bites .", "a hearing is scheduled today", "yes", "no", "x"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def encoder(folder: pathlib.Path) -> None:
  """Writes the configuration and tokenizer of XLM-R."""
  made = tokenizers.Tokenizer(tokenizers.models.Unigram())
  made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
  trainer = tokenizers.trainers.UnigramTrainer(
    vocab_size=60, special_tokens=SPECIAL, unk_token="<unk>"
  )
  made.train_from_iterator(TEXT, trainer)
  made.post_processor = tokenizers.processors.RobertaProcessing(
    ("</s>", 2), ("<s>", 0)
  )
  transformers.XLMRobertaTokenizerFast(tokenizer_object=made).save_pretrained(
    folder
  )
  transformers.XLMRobertaConfig(
    vocab_size=made.get_vocab_size(),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=66,
    initializer_range=0.5,
    pad_token_id=1,
    bos_token_id=0,
    eos_token_id=2,
  ).save_pretrained(folder)


def main(folder: pathlib.Path) -> None:
  torch.manual_seed(0)
  encoder(folder / "encoder")
  model = RegressionMetric(
    pretrained_model=str(folder / "encoder"),
    hidden_sizes=[24],
    load_pretrained_weights=False,
    local_files_only=True,
  )
  path = folder / "made" / "checkpoints" / "model.ckpt"
  path.parent.mkdir(parents=True)
  trainer = pytorch_lightning.Trainer(logger=False, accelerator="cpu")
  trainer.strategy.connect(model)
  trainer.save_checkpoint(path)
  (folder / "made" / "hparams.yaml").write_text(yaml.dump(dict(model.hparams)))
  print(path)


if __name__ == "__main__":
  main(pathlib.Path(sys.argv[1]))
