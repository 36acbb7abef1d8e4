"""Options of the data: what it is, how it is prepared, and how it is batched.

Sections of `jaxsyn.config`; those of second tasks and tree controls stand with
their tables.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal

from jaxsyn.options import choice, option, section
from jaxsyn.options.bounds import (
  MAX_COUNT,
  Amount,
  Count,
  CountOrOff,
  Folder,
  Language,
  Name,
  Range,
  RegistryKey,
  Seed,
  TextPattern,
)

if TYPE_CHECKING:  # rooms above: an option names its table by address
  from jaxsyn.data.loader.tasks import AuxiliaryTaskSpec, Brackets
  from jaxsyn.data.sentence.controls import TreeControl
  from jaxsyn.data.sentence.parsers import ParserSpec


# Of a data set and of a split; TFDS wants it so.
DataName = Annotated[
  str,
  TextPattern(
    "[a-z][a-z0-9_]{0,99}",
    "lower case letters, digits and underscores, a letter first, at most 100",
  ),
]


MAX_LABELS = 1 << 20  # of an annotation: a run's folder has them as well


@dataclasses.dataclass(frozen=True)
class AuxiliaryTask:
  """A second use of every training pair, beside translating its source."""

  task: AuxiliaryTaskSpec = choice(
    "jaxsyn.data.loader.tasks:TASKS",
    "none",
    '"parse": from the source to its tree, and tags around every source say '
    'which is asked for; "source": from the source with its tree to the same '
    "target, without tags.",
  )
  brackets: Brackets = choice(
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
class Mixture:
  """More prepared folders to train on, of the same vocabulary."""

  folders: tuple[Folder, ...] = option(
    (),
    "Beside config.data.directory, e.g. of back-translations; their split of "
    "the same name is read.",
  )
  weights: tuple[Amount, ...] = option(
    (),
    "How often an epoch goes through each, config.data.directory first: 2 is "
    "twice, .5 a half, drawn anew in every epoch. (): once.",
  )
  temperature: Annotated[float, Range(1, 100)] = option(
    1.0,
    "T above 1 evens out sizes: an epoch has n examples of a corpus of N, "
    "n ∝ N^(1/T), as many as there are in all; weights multiply.",
  )
  tags: bool = option(
    False,
    "Puts a tag of its own before each source of each of the folders, none "
    "before those of config.data.directory and before what is translated.",
  )


@dataclasses.dataclass(frozen=True)
class Sampling:
  """Subwords of training pairs, drawn anew in every epoch."""

  sides: tuple[Literal["source", "target"], ...] = option(
    (),
    'Of which sides: "source", "target"; (): none. By the vocabulary\'s type: '
    '"bpe" is BPE-dropout (Provilkov et al. 2020), "unigram" is subword '
    "regularisation (Kudo 2018). Validation and translation draw nothing.",
  )
  alpha: Annotated[float, Range(0, 1, above=True, below=True)] = option(
    0.1,
    '"bpe": how probably a merge is left out. "unigram": the power to which '
    "probabilities of segmentations are raised, of which all there are can be "
    "drawn; near 0 they are alike.",
  )


@dataclasses.dataclass(frozen=True)
class Data:
  """What the prepared folder is and how its text became examples."""

  name: DataName = option("corpus", "TFDS data set name.")
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
  citation: str = option(
    "",
    "Of those whose corpus it is, BibTeX in a line, for the data set's page in "
    "TFDS.",
    neutral=True,
  )
  homepage: str = option(
    "none", "Of the corpus, for the same page.", neutral=True
  )
  tree: TreeControl = choice(
    "jaxsyn.data.sentence.controls:TREES",
    "parsed",
    "Trees given to the model, on every side that has any. Controls: "
    '"linear" (parent = previous word), "random" (a random tree of the same '
    'size). "sampled" is no control: in training others are drawn in every '
    "epoch, among several parses and with some parents replaced; validation and "
    'translation read the parser\'s. "wrong_parents" replaces the parents of a '
    "fixed share of the words, in training, validation and translation alike.",
  )
  second: AuxiliaryTask = section(AuxiliaryTask)
  mixture: Mixture = section(Mixture)
  sampling: Sampling = section(Sampling)


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
class SideParser:
  """The parser of a side whose trees are not given, and of its raw text."""

  parser: ParserSpec = choice(
    "jaxsyn.data.sentence.parsers:PARSERS",
    "udpipe",
    'Parser: "udpipe" has a model for most languages; "spacy" and "stanza" need '
    "their own models. Trees of any other parser are given as CoNLL-U files.",
  )


@dataclasses.dataclass(frozen=True)
class Trees:
  """Where the trees come from."""

  sides: tuple[Literal["source", "target"], ...] = option(
    ("source",), 'Which sides get trees: "source", "target"; (): none.'
  )
  source: SideParser = section(SideParser)
  target: SideParser = section(SideParser)
  source_conllu: dict[str, str] = option(
    {},
    "CoNLL-U by another parser instead: split name -> file (gz or plain) of "
    "all lines of the raw file; a name in raw_dir, or a path. Empty, and no "
    "parser or model said, and the raw files are treebanks: their own trees.",
  )
  target_conllu: dict[str, str] = option({}, "The same of the target.")
  source_alternatives: dict[DataName, tuple[str, ...]] = option(
    {},
    'More parses beside the best, for config.data.tree = "sampled": split name '
    "-> CoNLL-U files (gz or plain), each of all lines of the raw file. The "
    "training split's do. One that has other words than the best parse of its "
    "line, or says that it was not parsed, is left out.",
    added_later=True,
  )
  target_alternatives: dict[DataName, tuple[str, ...]] = option(
    {}, "The same of the target.", added_later=True
  )
  source_brackets: dict[str, str] = option(
    {},
    "Constituency trees of the source, beside the others: split name -> file "
    "(gz or plain), Penn brackets, a tree a line. The training split's do.",
  )
  annotations: tuple[
    Annotated[str, RegistryKey("jaxsyn.data.annotations:ANNOTATIONS")], ...
  ] = option(
    (),
    "What else is kept of each word of these sides, as a feature that a part "
    "can read.",
  )
  labels: Annotated[int, Range(1, MAX_LABELS)] = option(
    20_000,
    'Of "lemma", "feats" and other annotations without labels of their own: so '
    "many, the most frequent ones of the training split, have an id each; all "
    "others are one, unknown.",
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
  sample: Annotated[int, Range(1, MAX_COUNT)] = option(
    1_000_000,
    "Training pairs that it is made from; of more, about so many, chosen by "
    "their hash.",
    unit="pairs",
  )
  like: str = option(
    "",
    "A prepared folder whose vocabulary is taken, for corpora that train "
    "together (config.data.mixture); the options above then mean nothing, but "
    "for joint.",
  )


@dataclasses.dataclass(frozen=True)
class Subset:
  """A random subset of the training pairs, for experiments with less data."""

  pairs: CountOrOff = option(
    0,
    "Training pairs, drawn uniformly without replacement from those that "
    "config.prepare.clean keeps; 0: all. The vocabulary is trained on them "
    "alone; other splits stay complete. With the same seed a smaller subset is "
    "part of a larger one. Pairs that config.prepare.max_subwords drops "
    "afterwards are not replaced.",
    unit="pairs",
  )
  seed: Seed = option(1, "Seed of the draw.")


@dataclasses.dataclass(frozen=True)
class Prepare:
  """Offline preparation (jaxsyn prepare)."""

  raw_dir: str = option("", "Folder of the raw files; --raw_dir overrides it.")
  splits: dict[DataName, tuple[str, ...]] = option(
    {},
    "Split name -> (source file, target file), plain text, .gz or .zst. A third "
    'entry "FIRST-LAST" takes only these lines, from 1, both included; "FIRST-" '
    "goes to the last. Of a treebank (.conllu, .conllu.gz) the `# text` "
    "comments are the lines. A side may be several files, their lines one after "
    'the other: "a.en,b.en", or by a pattern, "part-*.en.gz". One file may have '
    "both sides: a .tsv file of two columns, or .jsonl (config.prepare.fields). "
    '("tfds:NAME", TFDS split) is a TFDS dataset, ("tfds:FOLDER", TFDS split) a '
    "folder that a TFDS builder has made; without a TFDS split, that of the same "
    "name is read.",
  )
  fields: tuple[str, ...] = option(
    (),
    "Names of the source text and of the target text in JSON lines and TFDS "
    'datasets, nested ones as in "translation/en"; (): the language codes.',
    added_later=True,
  )
  optional: tuple[DataName, ...] = option(
    (),
    "Test splits that are left out, with a warning, where their files are not "
    "in raw_dir and cannot be fetched.",
    added_later=True,
  )
  downloads: tuple[tuple[str, ...], ...] = option(
    (),
    "(file name, URL, SHA-256) of raw files and of parser models, fetched "
    'where raw_dir lacks them. SHA-256 "": that of the first fetch, which is '
    "written down beside the file and holds ever after. A fourth entry, as "
    '"9000000000", is the most bytes; else 4 GiB.',
  )
  workers: Annotated[int, Range(0, 1024)] = option(
    0, "Processes; 0: one a core. Small corpora need fewer."
  )
  shard_mib: Annotated[float, Range(0.001, 1 << 20)] = option(
    256.0,
    "A file of records ends with the first example that fills it; so do those "
    "of columns, text and trees beside it.",
    unit="MiB",
  )
  alignments: dict[DataName, tuple[str, ...]] = option(
    {},
    "Word alignments, for config.losses.guided_alignment: split name -> (file,), "
    'a line a pair as in "0-0 1-2" (Pharaoh): words between blanks of the source '
    "and of the target, from 0. Where other words were aligned, (file, source, "
    "target) with the files of these words, which may differ from the raw "
    "text's by blanks alone. Of all lines of the raw file; names in raw_dir, or "
    "paths. The training split's do.",
    added_later=True,
  )
  clean: Clean = section(Clean)
  subset: Subset = section(Subset, added_later=True)
  parse: Trees = section(Trees)
  vocabulary: Subwords = section(Subwords)
  max_subwords: Annotated[int, Range(2, MAX_COUNT)] = option(  # one, and EOS
    250,
    "Drop training pairs with a longer side; EOS included.",
    unit="subwords",
  )


@dataclasses.dataclass(frozen=True)
class Batches:
  """Batches: a small set of static shapes under one budget."""

  tokens: Count = option(
    4096, "Rows times the longer of the two padded lengths.", unit="subwords"
  )
  shapes: Annotated[int, Range(0, 1000)] = option(
    0,
    "How many (source, target) lengths to choose from the data. Each is a "
    "program to be compiled; 0: as many as save more padding than that costs, "
    "few for few pairs and never more than 12.",
  )
  length_multiple: Annotated[int, Range(1, 2**16)] = option(
    1, "Padded lengths are multiples of this; 8 for a TPU.", unit="subwords"
  )
  row_multiple: Annotated[int, Range(1, 2**16)] = option(
    8,
    "Factor of the number of rows in every batch. It must be a multiple of the "
    "number of devices that rows are split over, so that batches do not depend "
    "on that number.",
    unit="rows",
  )
  memory_gib: Amount = option(
    1.0,
    "Examples in memory, with all features that the data has. A split that "
    "takes no more is held and shuffled whole; of a larger one each epoch "
    "shuffles blocks of 4,096, and then the examples within windows of half of "
    "this.",
    unit="GiB",
  )
