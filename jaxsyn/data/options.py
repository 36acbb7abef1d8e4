"""Options of datasets: languages, splits, preparation and batches."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.loader.tasks import AuxiliaryTask
from jaxsyn.data.sentence.controls import TREES, TreeControl
from jaxsyn.data.sentence.parsers import PARSERS, ParserSpec
from jaxsyn.data.sentence.vocabulary import Subwords
from jaxsyn.options import RegistryKey, choice, option, section
from jaxsyn.options.bounds import (
  MAX_COUNT,
  Amount,
  Count,
  CountOrOff,
  Folder,
  Language,
  Name,
  Range,
  Seed,
  TextPattern,
)

# Name of a dataset or of a split, as TFDS requires it.
DataName = Annotated[
  str,
  TextPattern(
    "[a-z][a-z0-9_]{0,99}",
    "lowercase letters, digits and underscores, a letter first, at most 100",
  ),
]


@dataclasses.dataclass(frozen=True)
class Mixture:
  """Additional training corpora: datasets with the same vocabulary."""

  folders: tuple[Folder, ...] = option(
    (),
    "Additional dataset directories to train on, such as back-translations. "
    "The split config.data.train of each directory is used.",
  )
  weights: tuple[Amount, ...] = option(
    (),
    "Number of passes over each corpus per epoch, starting with "
    "config.data.directory. With 0.5, each epoch reads a different random "
    "half of the corpus. (): one pass over each corpus.",
  )
  temperature: Annotated[float, Range(1, 100)] = option(
    1.0,
    "Sampling temperature T: each epoch samples n ∝ N^(1/T) examples from a "
    "corpus of N examples; the total stays the same. `weights` multiply n.",
  )
  tags: bool = option(
    False,
    "Whether to prepend a tag for its directory to each source sentence from "
    "`folders`. Sentences from config.data.directory and sentences to "
    "translate get no tag.",
  )


@dataclasses.dataclass(frozen=True)
class Sampling:
  """Subword sampling: new segmentations of training pairs in every epoch."""

  sides: tuple[Literal["source", "target"], ...] = option(
    (),
    "Sides whose training sentences are resegmented at random in each epoch; "
    '(): none. "bpe" vocabularies use BPE-dropout (Provilkov et al. 2020), '
    'and "unigram" vocabularies use subword regularization (Kudo 2018).',
  )
  alpha: Annotated[float, Range(0, 1, above=True, below=True)] = option(
    0.1,
    'Strength of subword sampling. "bpe": probability of omitting a merge. '
    '"unigram": exponent of the probabilities of segmentations.',
  )


@dataclasses.dataclass(frozen=True)
class Data:
  """Dataset options: directory, languages, splits and trees."""

  name: DataName = option("corpus", "Name of the dataset in TFDS.")
  directory: Folder = option(
    "data/corpus",
    "Dataset directory, which `jaxsyn prepare` writes.",
    neutral=True,
    common=True,
  )
  source_language: Language = option("en", "Language code of the source.")
  target_language: Language = option("de", "Language code of the target.")
  train: Name = option("train", "Name of the training split.")
  validation: Name = option(
    "validation",
    "Name of the validation split, which is used to select the best "
    "checkpoint.",
  )
  test: tuple[Name, ...] = option(
    ("test",), "Names of the prepared splits that serve as test sets; (): none."
  )
  tree: TreeControl = choice(
    TREES,
    "parsed",
    'Dependency trees that the model reads: "parsed", the parser\'s trees; '
    '"linear", a control in which the parent of a word is the previous word; '
    '"random", a control with random trees of the same size; "sampled", in '
    "each training epoch, one of several parses with some parents replaced; "
    '"wrong_parents", the parser\'s trees with a fixed fraction of wrong '
    "parents in training, validation and translation.",
    common=True,
  )
  second: AuxiliaryTask = section(AuxiliaryTask)
  mixture: Mixture = section(Mixture)
  sampling: Sampling = section(Sampling)


@dataclasses.dataclass(frozen=True)
class Clean:
  """Filters that clean the training split; other splits keep every line.

  Pairs with a side without visible characters, or with control characters, are
  always dropped. In other splits NUL is an error, and the others are kept.
  """

  max_words: CountOrOff = option(
    175,
    "Maximum number of space-separated words on a side. 0: no limit.",
    unit="words",
  )
  max_characters: CountOrOff = option(
    1000, "Maximum length of a side. 0: no limit.", unit="characters"
  )
  max_ratio: Amount = option(
    0.0, "Maximum ratio of the word counts of the two sides. 0: no limit."
  )
  duplicates: bool = option(False, "Whether to drop repeated pairs.")
  language: bool = option(
    False,
    "Whether to keep only pairs whose languages py3langid identifies as "
    "source_language and target_language. Bugliarello & Okazaki 2020 do this "
    "with langdetect, and Deguchi et al. 2021 with langid. Short lines are "
    "often misidentified: of the 29,000 pairs of Multi30k, 27 are dropped, "
    "most of which are correct.",
  )


@dataclasses.dataclass(frozen=True)
class SideParser:
  """Dependency parser for source or target text that comes without trees."""

  parser: ParserSpec = choice(
    PARSERS,
    "udpipe",
    'Parser: "udpipe" downloads models for most languages; "spacy" and '
    '"stanza" need installed models. Trees from other parsers are read from '
    "CoNLL-U files.",
  )


@dataclasses.dataclass(frozen=True)
class Trees:
  """Options for trees from parsers or CoNLL-U files, and for word annotations."""

  sides: tuple[Literal["source", "target"], ...] = option(
    ("source",),
    'Sides that get dependency trees: "source", "target"; (): none.',
  )
  source: SideParser = section(SideParser)
  target: SideParser = section(SideParser)
  source_conllu: dict[str, str] = option(
    {},
    "CoNLL-U files with source trees from another parser: split name -> file "
    "(plain or .gz), as a path or a file name in raw_dir. The file must cover "
    "all lines of the raw file. If empty and no parser or model is set, raw "
    "files that are treebanks provide the trees.",
  )
  target_conllu: dict[str, str] = option(
    {}, "CoNLL-U files with trees of the target; see source_conllu."
  )
  source_alternatives: dict[DataName, tuple[str, ...]] = option(
    {},
    'Additional parses of the source, for config.data.tree = "sampled": split '
    "name -> CoNLL-U files, as in source_conllu. Only the training split "
    "needs them. Parses that have no tree, or whose words differ from those "
    "of the main parse, are skipped.",
  )
  target_alternatives: dict[DataName, tuple[str, ...]] = option(
    {}, "Additional parses of the target; see source_alternatives."
  )
  source_brackets: dict[str, str] = option(
    {},
    "Constituency trees of the source, in addition to dependency trees: split "
    "name -> file (plain or .gz) with one tree in Penn Treebank format per "
    "line. Only the training split needs them.",
  )
  annotations: tuple[Annotated[str, RegistryKey(ANNOTATIONS)], ...] = option(
    (), "Word annotations to store, for modifiers that read them."
  )


@dataclasses.dataclass(frozen=True)
class Subset:
  """A random subset of the training pairs, for experiments with less data."""

  pairs: CountOrOff = option(
    0,
    "Number of training pairs, sampled uniformly without replacement from "
    "those that config.prepare.clean keeps; 0: all. The vocabulary is trained "
    "only on this subset. With the same seed, larger subsets contain the "
    "smaller ones. Pairs that config.prepare.max_subwords drops are not "
    "replaced.",
    unit="pairs",
  )
  seed: Seed = option(1, "Seed of the random subset.")


@dataclasses.dataclass(frozen=True)
class Prepare:
  """Options of `jaxsyn prepare`: raw files, cleaning, parsing, vocabulary."""

  raw_dir: str = option(
    "", "Directory of the raw files; --raw_dir overrides it."
  )
  splits: dict[DataName, tuple[str, ...]] = option(
    {},
    "Split name -> (source file, target file), plain text, .gz or .zst. A "
    'third entry "FIRST-LAST" selects a range of lines, from 1, including '
    'both ends; "FIRST-" extends to the last line. From a treebank (.conllu, '
    ".conllu.gz), the `# text` comments are read as lines. A side may consist "
    'of several files, "a.en,b.en" or "part-*.en.gz", which are concatenated. '
    "A single file may contain both sides: a .tsv file with two columns, or a "
    '.jsonl file (see config.prepare.fields). ("tfds:NAME", TFDS split) reads '
    'a TFDS dataset, and ("tfds:FOLDER", TFDS split) a folder written by a '
    "TFDS builder; the TFDS split defaults to the name of this split.",
  )
  fields: tuple[str, ...] = option(
    (),
    "Names of the source and target text fields in JSON Lines files and TFDS "
    'datasets; "translation/en" names a nested field. (): the language codes.',
  )
  optional: tuple[DataName, ...] = option(
    (),
    "Test splits that are omitted with a warning if their files are not in "
    "raw_dir and cannot be downloaded.",
  )
  downloads: tuple[tuple[str, ...], ...] = option(
    (),
    "Raw files and parser models to download if they are missing in raw_dir: "
    '(file name, URL, SHA-256). If the SHA-256 is "", the hash of the first '
    "download is recorded and required from then on. A fourth entry, such as "
    '"9000000000", is the maximum size in bytes; default: 4 GiB.',
  )
  workers: Annotated[int, Range(0, 1024)] = option(
    0, "Number of worker processes; 0: one per core, fewer for small corpora."
  )
  shard_mib: Annotated[float, Range(0.001, 1 << 20)] = option(
    256.0, "Approximate size of a TFRecord file.", unit="MiB"
  )
  alignments: dict[DataName, tuple[str, ...]] = option(
    {},
    "Word alignments for config.losses.guided_alignment: split name -> "
    '(file,) with one line per pair in Pharaoh format, "0-0 1-2": indices of '
    "space-separated source and target words, from 0. If the alignments are "
    "for tokenized text, use (file, source, target), where source and target "
    "are the tokenized files, which may differ from the raw text only in "
    "spaces. Files are named as in config.prepare.parse.source_conllu. Only "
    "the training split needs alignments.",
  )
  clean: Clean = section(Clean)
  subset: Subset = section(Subset)
  parse: Trees = section(Trees)
  vocabulary: Subwords = section(Subwords)
  max_subwords: Annotated[int, Range(2, MAX_COUNT)] = option(  # one, and EOS
    250,
    "Maximum length of a side of a training pair, including EOS; longer pairs "
    "are dropped.",
    unit="subwords",
  )


@dataclasses.dataclass(frozen=True)
class Batches:
  """Batch options: token budget, padded lengths and memory for examples."""

  tokens: Count = option(
    4096,
    "Maximum size of a batch, which is its number of rows times the longer of "
    "its two padded lengths.",
    unit="subwords",
    common=True,
  )
  shapes: Annotated[int, Range(0, 1000)] = option(
    0,
    "Number of padded shapes (source length, target length), which are chosen "
    "from the data. Each shape is compiled separately. With 0, shapes are "
    "added as long as each saves more time in padding than its compilation "
    "takes (at most 12 shapes; fewer for small corpora).",
  )
  length_multiple: Annotated[int, Range(1, 2**16)] = option(
    1,
    "Padded lengths are multiples of this number; use 8 on a TPU.",
    unit="subwords",
  )
  row_multiple: Annotated[int, Range(1, 2**16)] = option(
    8,
    "The number of rows in every batch is a multiple of this number. It must "
    "be a multiple of the number of devices that rows are split over.",
    unit="rows",
  )
  memory_gib: Amount = option(
    1.0,
    "Memory for examples with all their features. A split that fits is loaded "
    "and shuffled completely. For a larger split, each epoch shuffles blocks "
    "of 4,096 examples, and then the examples within windows that take half "
    "of this memory.",
    unit="GiB",
  )


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """Config sections that dataset preparation reads: `data` and `prepare`."""

  data: Data = section(Data)
  prepare: Prepare = section(Prepare, neutral=True)
