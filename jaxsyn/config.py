"""Every option of jaxsyn: its default, bounds, unit and meaning.

The only place where an option is said, but for those of choices (parts,
windows, families, losses, rules, schedules), which stand with the choice.
`configs/base.py` makes the ConfigDict of a command line from it; `read_config`
is the way back and refuses unknown, missing or mistyped fields by name.
`jaxsyn.plan` comes after and checks that the fields fit each other.

  python -m jaxsyn.train --helpconfig[=optimiser]    prints all of it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jaxsyn.errors import InputError
from jaxsyn.options import (
  CONFIG,
  WHOLE,
  Named,
  any_of,
  as_dict,
  from_config,
  one_of,
  option,
  section,
)
from jaxsyn.options.bounds import (
  MOST,
  Amount,
  Axis,
  Count,
  CountOrOff,
  Folder,
  Language,
  Name,
  NameOf,
  Positive,
  Range,
  Rate,
  Seed,
  Units,
)

if TYPE_CHECKING:  # rooms above: an option names its table by address
  from jaxsyn.data.loader.tasks import Brackets, Task
  from jaxsyn.data.sentence.controls import Tree
  from jaxsyn.models.spec import Family
  from jaxsyn.syntax import Spec
  from jaxsyn.training.objective import Loss
  from jaxsyn.training.optimiser import Rule
  from jaxsyn.training.schedules import Schedule

PARTS = "jaxsyn.syntax:PARTS"


@dataclasses.dataclass(frozen=True)
class Second:
  """A second use of every training pair, beside translating its source."""

  task: Task = one_of(
    "jaxsyn.data.loader.tasks:TASKS",
    "none",
    '"parse": from the source to its tree, and tags around every source say '
    'which is asked for; "source": from the source with its tree to the same '
    "target, without tags.",
  )
  brackets: Brackets = one_of(
    "jaxsyn.data.loader.tasks:BRACKETS",
    "dependency",
    'Which trees; "constituency" where those were given '
    "(config.prepare.parse.source_brackets), as published.",
  )
  weight: Amount = option(
    1.0,
    "Of such an example in every term of the loss, where a translation has 1: "
    "the term's sum is multiplied, what the sum is divided by is not. With .3 "
    "a batch of such examples alone has .3 of its gradient.",
  )
  longest: Count = option(
    250,
    "Leaves out those with a longer side; brackets, EOS and tags included.",
    unit="subwords",
  )


@dataclasses.dataclass(frozen=True)
class Data:
  """What the prepared folder is and how its text became examples."""

  name: Name = option(
    "corpus", "TFDS data set name: lower case, digits, underscores."
  )
  directory: Folder = option(
    "data/corpus", "The prepared folder.", neutral=True
  )
  source_language: Language = option("en", "Code of the source's language.")
  target_language: Language = option("de", "Code of the target's language.")
  train: Name = option("train", "Name of the split to train on.")
  validation: Name = option(
    "validation", "The split that chooses the best checkpoint."
  )
  test: tuple[Name, ...] = option(
    ("test",), "Splits to report on, of those prepared; (): none."
  )
  tree: Tree = one_of(
    "jaxsyn.data.sentence.controls:TREES",
    "parsed",
    "Trees given to the model, on every side that has any. Controls: "
    '"linear" (parent = previous word), "random" (a random tree of the same '
    "size).",
  )
  second: Second = section(Second)


@dataclasses.dataclass(frozen=True)
class Clean:
  """Cleaning of the training split; other splits keep every line."""

  empty: bool = option(True, "Drop pairs with a side that has nothing to see.")
  control: bool = option(
    True,
    "Drop pairs with NUL or other control characters. NUL in another split is "
    "an error, the others stay there and are told.",
  )
  max_words: CountOrOff = option(
    175, "Drop longer sides, between blanks; 0: off.", unit="words"
  )
  max_characters: CountOrOff = option(
    1000, "Drop longer sides; 0: off.", unit="characters"
  )
  max_ratio: Amount = option(
    0.0, "Drop pairs whose word ratio is above; 0: off."
  )
  duplicates: bool = option(False, "Drop repeats of a pair.")
  nfc: bool = option(False, "Rewrite text in Unicode NFC before anything else.")
  language: bool = option(
    False,
    "Drop pairs unless py3langid's first guess of all its languages is "
    "source_language for the source, and target_language for the target: the "
    "rule of Bugliarello & Okazaki 2020 (with langdetect) and of Deguchi et "
    "al. 2021 (with langid). It errs on short lines: of 29,000 pairs of "
    "Multi30k it drops 27, most of them good, in 2 s.",
  )


@dataclasses.dataclass(frozen=True)
class Trees:
  """Where the trees come from."""

  sides: tuple[Literal["source", "target"], ...] = option(
    ("source",), 'Which sides get trees: "source", "target"; (): none.'
  )
  source_model: str = option(
    "",
    "UDPipe model of the source: a file, or a language code for spacy-udpipe "
    "to download. Empty: the language of the side.",
  )
  target_model: str = option("", "The same of the target.")
  source_conllu: dict[str, str] = option(
    {},
    "CoNLL-U by another parser instead: split name -> file (gz or plain) of "
    "all lines of the raw file; a name in raw_dir, or a path. Empty, and no "
    "model said, and the raw files are treebanks: their own trees.",
  )
  target_conllu: dict[str, str] = option({}, "The same of the target.")
  beam: Annotated[int, Range(0, 100)] = option(
    0, "UDPipe's beam_search; 0: the model's own. 1 is faster."
  )
  source_brackets: dict[str, str] = option(
    {},
    "Constituency trees of the source, beside the others: split name -> file "
    "(gz or plain), Penn brackets, a tree a line. The training split's do.",
  )
  annotations: tuple[
    Annotated[str, NameOf("jaxsyn.data.annotations:ANNOTATIONS")], ...
  ] = option(
    (),
    "What else is kept of each word of these sides, as a feature that a part "
    "can read.",
  )


@dataclasses.dataclass(frozen=True)
class Subwords:
  """The vocabulary, by SentencePiece."""

  # Four pieces are special symbols.
  size: Annotated[int, Range(5, 2**24)] = option(
    8000, "Pieces, special symbols included.", unit="pieces"
  )
  type: Literal["bpe", "unigram", "word", "char"] = option(
    "bpe",
    'SentencePiece model. "word" keeps the `size` most frequent strings '
    "between blanks, so give tokenised files (Moses with -no-escape, KyTea) to "
    "have words without their punctuation; translations are then tokenised as "
    'well. Other words are unknown, "⁇" in translations.',
  )
  joint: bool = option(True, "One vocabulary for both sides.")
  character_coverage: Annotated[float, Range(0.98, 1)] = option(
    1.0, '0.9995 for Chinese or Japanese; not of "word".'
  )
  normalisation: Literal[
    "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"
  ] = option("nmt_nfkc", "SentencePiece's rule name.")


@dataclasses.dataclass(frozen=True)
class Prepare:
  """Offline preparation (python -m preprocess.build)."""

  raw_dir: str = option("", "Folder of the raw files; --raw_dir overrides it.")
  splits: dict[str, tuple[str, ...]] = option(
    {},
    "Split name -> (source file, target file), plain text or .gz. A third "
    'entry "FIRST-LAST" takes only these lines, from 1, both included; "FIRST-" '
    "goes to the last. Of a treebank (.conllu, .conllu.gz) the `# text` "
    "comments are the lines.",
  )
  downloads: tuple[tuple[str, ...], ...] = option(
    (),
    "(file name, URL, SHA-256) of raw files and of parser models, fetched "
    'where raw_dir lacks them. SHA-256 "": that of the first fetch, which is '
    "written down beside the file and holds ever after. A fourth entry, as "
    '"9000000000", is the most bytes; else 4 GiB.',
  )
  workers: Annotated[int, Range(0, 1024)] = option(
    0, "Parser processes; 0: one a core."
  )
  shards: Annotated[int, Range(1, 10_000)] = option(
    4, "TFRecord files a split."
  )
  clean: Clean = section(Clean)
  parse: Trees = section(Trees)
  vocabulary: Subwords = section(Subwords)
  max_subwords: Annotated[int, Range(2, MOST)] = option(  # one, and EOS
    250,
    "Drop training pairs with a longer side; EOS included.",
    unit="subwords",
  )


@dataclasses.dataclass(frozen=True)
class Batch:
  """Batches: a small set of static shapes under one budget."""

  tokens: Count = option(
    4096, "Rows times the longer of the two padded lengths.", unit="subwords"
  )
  shapes: Annotated[int, Range(1, 1000)] = option(
    12, "How many (source, target) lengths to choose from the data."
  )
  length_multiple: Annotated[int, Range(1, 2**16)] = option(
    1, "Padded lengths are multiples of this; 8 for a TPU.", unit="subwords"
  )
  row_multiple: Annotated[int, Range(1, 2**16)] = option(
    8, "Rows are multiples of this and of the device count.", unit="rows"
  )
  memory_gib: Amount = option(
    4.0,
    "Features above this are memory-mapped instead of loaded.",
    unit="GiB",
    neutral=True,
  )


@dataclasses.dataclass(frozen=True)
class Model:
  """The encoder-decoder: what all families have, and a section for each."""

  family: Family = one_of(
    "jaxsyn.models.families:FAMILIES", "transformer", "A system sets it."
  )
  width: Units = option(
    128, 'D, of all families; of "gru" that of the embeddings.'
  )
  tie_embeddings: bool = option(
    True, "Source and target share a table (joint vocabulary)."
  )
  tie_output: bool = option(
    True, "The output projection is the target's table."
  )
  dtype: Literal["float32", "bfloat16"] = option(
    "float32", "Of the computation; parameters are float32."
  )


@dataclasses.dataclass(frozen=True)
class Places:
  """Parts, by the place where they change attention."""

  encoder: Named[Spec] = any_of(PARTS, "Parts of the encoder.")
  decoder: Named[Spec] = any_of(PARTS, "Parts of the decoder's self-attention.")
  cross: Named[Spec] = any_of(PARTS, "Parts of the cross-attention.")

  def at(self, place: str) -> Named[Spec]:
    """(name, spec) of the parts at a place, in table order."""
    return getattr(self, place)

  def at_embeddings(self, place: str) -> Named[Spec]:
    return tuple((n, spec) for n, spec in self.at(place) if spec.embeds)

  def at_layer(self, place: str, layer: int) -> Named[Spec]:
    return tuple(
      (n, spec)
      for n, spec in self.at(place)
      if not spec.embeds and spec.in_layer(layer)
    )


@dataclasses.dataclass(frozen=True)
class Optimiser:
  """How parameters are updated: a rule, a learning rate, and what is around."""

  name: Rule = one_of(
    "jaxsyn.training.optimiser:RULES", "adam", "The update rule."
  )
  learning_rate: Positive = option(
    4e-3,
    'The peak for "inverse_sqrt"; the factor for "noam"; adadelta as '
    'published has 1.0 and "constant".',
  )
  schedule: Schedule = one_of(
    "jaxsyn.training.schedules:SCHEDULES",
    "inverse_sqrt",
    "How the learning rate goes.",
  )
  weight_decay: Amount = option(0.0, "Decoupled (AdamW) if above 0.")
  clip: Amount = option(0.0, "Largest global gradient norm; 0: no clipping.")
  accumulate: Count = option(
    1,
    "Batches a parameter update; exactly one batch of all their rows, also for "
    "losses that count other things than subwords. A system of n losses needs "
    "n backward passes a batch for that, and memory for n gradients more.",
    unit="batches",
  )


@dataclasses.dataclass(frozen=True)
class Mesh:
  """Devices an axis; -1: the rest."""

  data: Axis = option(-1, "Rows of a batch are split over it.")
  fsdp: Axis = option(1, "Rows and parameters are split over it.")
  tensor: Axis = option(1, "Heads and wide layers are split over it.")


@dataclasses.dataclass(frozen=True)
class Train:
  """The run of the training."""

  steps: Count = option(20_000, "Until the end.", unit="batches", resume=True)
  minutes: Annotated[float, Range(0, 1_000_000_000)] = option(
    0.0,
    "Stop after as much training time, resumes added; 0: off.",
    unit="minutes",
    resume=True,
  )
  evaluate_every: Count = option(
    500,
    "Between validations: losses and `selection`.",
    unit="steps",
    resume=True,
  )
  save_every: Count = option(
    500, "Between checkpoints.", unit="steps", resume=True
  )
  keep: Count = option(3, "Checkpoints kept beside the best one.", resume=True)
  log_every: Count = option(
    50, "Between log lines.", unit="steps", neutral=True
  )
  patience: CountOrOff = option(
    0,
    "Evaluations without a better one by `selection`; 0: off.",
    resume=True,
  )
  # How it is validated may not change: scores would not compare with the best
  # so far.
  selection: Annotated[str, NameOf("jaxsyn.scoring.selection:SELECTIONS")] = (
    option(
      "bleu",
      "What is the best on the validation split: a metric of its translations, "
      'or the "likelihood" of a target subword, for which nothing is translated. '
      "A tie goes to the likelihood, and BLEU without a right 4-gram counts as "
      "0, since a model learns for long before it has any.",
    )
  )
  tokenizer: str = option(
    "",
    'sacreBLEU\'s, of the words of validation BLEU and RIBES: "13a", "zh", '
    '"ja-mecab", "char", ... Empty: what fits data.target_language, as in '
    "jaxsyn.scoring.tokenizers.",
  )
  validation_beam: Annotated[int, Range(1, 1000)] = option(
    1, "Beam of the validation's translations; 1: greedy."
  )
  validation_sentences: CountOrOff = option(
    0, "Of the split, to be translated; 0: all.", unit="sentences"
  )
  ema: Rate = option(
    0.0,
    "Decay d of an average of the parameters, used to evaluate; 0: off. Those "
    "after update i of n weigh dⁿ⁻ⁱ; the initial ones nothing.",
  )
  average: Count = option(
    1,
    "Translate with the mean of the last N kept checkpoints.",
    resume=True,
  )
  parallelism: Literal["jit", "pmap"] = option(
    "jit", '"jit" (NamedSharding) or "pmap".', resume=True
  )
  mesh: Mesh = section(Mesh, resume=True)
  prefetch: Annotated[int, Range(0, 10_000)] = option(
    2, "Made ahead of the device.", unit="batches", neutral=True
  )


@dataclasses.dataclass(frozen=True)
class Decode:
  """How translations are searched for."""

  beam: Annotated[int, Range(1, 1000)] = option(
    5, "Hypotheses kept of a sentence; 1: greedy."
  )
  length_penalty: Literal["fairseq", "gnmt"] = option(
    "fairseq", '"fairseq": len**alpha; "gnmt": ((5+len)/6)**alpha.'
  )
  # A length to the 9th overflows.
  alpha: Annotated[float, Range(0, 8)] = option(
    1.0, "Exponent of the length penalty."
  )
  stop: Literal["first", "bound"] = option(
    "first",
    'End when the "first" `beam` hypotheses ended, or when none that goes on '
    'can win: "bound".',
  )
  max_length_factor: Annotated[float, Range(0, 1000)] = option(
    1.5,
    "Longest output of a sentence, EOS included: factor * own source subwords, "
    "rounded up, + offset. The source's EOS and tags count too.",
  )
  max_length_offset: Annotated[int, Range(0, 100_000)] = option(
    10, "See max_length_factor.", unit="subwords"
  )
  checkpoint: Literal["best", "last"] = option(
    "best", 'Parameters to translate with: "best" or "last".'
  )
  sentences: Annotated[int, Range(1, 2**16)] = option(
    64, "Decoded together.", unit="sentences"
  )
  nbest: Annotated[int, Range(1, 1000)] = option(
    1, "Translations of a sentence that are given."
  )


@dataclasses.dataclass(frozen=True)
class Config:
  """All of it."""

  system: Name = option(
    "transformer",
    "Name of a function in configs/systems.py, which sets it: the part after "
    "':' in --config.",
  )
  seed: Seed = option(
    0, "Of parameters, dropout, batch order and random trees."
  )
  data: Data = section(Data)
  prepare: Prepare = section(Prepare, neutral=True)
  batch: Batch = section(Batch)
  model: Model = section(Model)
  parts: Places = section(Places)
  losses: Named[Loss] = any_of(
    "jaxsyn.training.losses:LOSSES",
    "Terms of the objective. Perplexity is of the unsmoothed likelihood.",
    ["nll"],
  )
  optimiser: Optimiser = section(Optimiser)
  train: Train = section(Train)
  decode: Decode = section(Decode, resume=True)


# Options that have moved: dotted name -> where they are now.
MOVED = {
  **{
    f"model.{name}": f"model.transformer.{name}"
    for name in (
      *("encoder_layers", "decoder_layers", "feed_forward", "heads", "norm"),
      *("activation", "positions", "dropout", "attention_dropout"),
      "activation_dropout",
    )
  },
  **{f"optimiser.{name}": f"optimiser.adam.{name}" for name in (
    "beta1", "beta2", "epsilon")},
  "optimiser.rho": "optimiser.adadelta.rho",
  **{f"optimiser.{name}": f"optimiser.inverse_sqrt.{name}" for name in (
    "warmup", "warmup_start", "minimum")},
  "contexts": "model.gru.windows",
}  # fmt: skip


def moved(name: str) -> str:
  """What to say of an option that stood elsewhere; "" of any other.

  Args:
    name: dotted, without "config.".
  """
  for old, new in MOVED.items():
    if f"{name}.".startswith(f"{old}."):
      return f"config.{old} is now config.{new}."
  return ""


def read_config(config: Mapping[str, Any]) -> Config:
  """Checks a whole config.

  Args:
    config: a ConfigDict as `get_config` returns it, or a plain nested dict.

  Raises:
    InputError: a field is unknown, missing or of a wrong type; the message
      gives its dotted name.
  """
  if hasattr(config, "to_dict"):
    config = config.to_dict()
  for old in MOVED:
    if _holds(config, old):
      raise InputError(moved(old))
  return from_config(Config, config, CONFIG, WHOLE)


def _holds(config: Any, name: str) -> bool:
  """Whether a nested dict has a dotted name."""
  for one in name.split("."):
    if not isinstance(config, Mapping) or one not in config:
      return False
    config = config[one]
  return True


__all__ = ["Config", "InputError", "as_dict", "moved", "read_config"]
