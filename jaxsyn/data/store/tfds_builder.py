"""The records as a data set of TensorFlow Datasets (TFDS).

`write` is what `preprocess.build` calls: TFRecord shards, their index and the
TFDS metadata, made without TensorFlow. Whoever has TensorFlow reads the same
folder with

  tfds.load("multi30k_en_de", data_dir="data/multi30k_en_de")
  tfds.builder_from_directory("data/multi30k_en_de/multi30k_en_de/1.0.0")

Tree distances come out as flat uint8 (W·W): the file keeps them as bytes.

`SyntaxPairs` is for text beyond one machine: prepare a sample with
`preprocess.build`, and let Beam make the examples of the rest with the sample's
vocabulary, parser and relations.
"""

from __future__ import annotations

import functools
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core import dataset_info
from tensorflow_datasets.proto import tf_example_pb2

from jaxsyn import files
from jaxsyn.data import schema
from jaxsyn.data.sentence.example import encode
from jaxsyn.data.sentence.parser import UDPipe
from jaxsyn.data.sentence.text import lines_of
from jaxsyn.data.store import integrity, manifests, tfrecord
from jaxsyn.data.store.blocks import Block, BlockWriter, LengthsWriter
from jaxsyn.data.store.decoding import kind_of
from jaxsyn.data.store.index import Index
from jaxsyn.data.store.manifest_format import records_sha256
from jaxsyn.data.store.rows import TOGETHER, Rows
from jaxsyn.errors import InputError

VERSION = "1.0.0"
DESCRIPTION = (
  "Sentence pairs as subword ids with dependency trees, prepared by jaxsyn."
)


def serializer(
  names: Iterable[str],
) -> Callable[[Mapping[str, np.ndarray]], bytes]:
  """A function from an example to a tf.train.Example, the same bytes always.

  Those of TFDS's own ExampleSerializer, in a third of its time: that looks at
  every value, and leaves the order of the features to chance.

  Args:
    names: of the features that an example holds.
  """
  kinds = {name: kind_of(schema.FEATURES[name]) for name in names}

  def serialize(example: Mapping[str, np.ndarray]) -> bytes:
    proto = tf_example_pb2.Example()
    for name, kind in kinds.items():
      array, own = example[name], getattr(proto.features.feature[name], kind)
      own.SetInParent()  # where there are no values too
      own.value.extend(
        [array.tobytes()] if kind == "bytes_list" else array.ravel().tolist()
      )
    return proto.SerializeToString(deterministic=True)

  return serialize


def write(
  directory: pathlib.Path,
  *,
  name: str,
  version: str,
  features: tfds.features.FeaturesDict,
  splits: Mapping[str, tuple[int, Iterable[Mapping[str, np.ndarray]]]],
  shards: int = 1,
) -> dict[str, dict[str, Any]]:
  """Writes directory/name/version, and the same examples as columns.

  Either folder appears when all of it is there.

  Args:
    directory: the prepared folder.
    name: lower case, digits and underscores, as TFDS wants.
    version: three numbers, "1.0.0".
    features: what an example holds, of `jaxsyn.data.schema.tfds_features`.
    splits: split name -> (number of examples, the examples in order).
    shards: files a split; fewer where there are fewer examples.

  Returns:
    What the manifest says of each split: "examples", "shards" (file, examples,
    bytes, sha256 of each) and "records_sha256".

  Raises:
    ValueError: a split does not hold as many examples as it said.
  """
  directory = pathlib.Path(directory)
  with (
    files.publish_folder(directory / name / version) as folder,
    files.publish_folder(directory / "columns") as columns,
  ):
    facts = {
      split: _write_split(
        folder,
        f"{name}-{split}.tfrecord",
        *value,
        columns=columns / split,
        shards=shards,
        features=tuple(features),
      )
      for split, value in splits.items()
    }
    _write_metadata(
      folder, name=name, version=version, features=features, splits=facts
    )
  return facts


def _write_split(
  folder: pathlib.Path,
  stem: str,
  count: int,
  examples: Iterable[Mapping[str, np.ndarray]],
  *,
  columns: pathlib.Path,
  shards: int,
  features: Sequence[str],
) -> dict[str, Any]:
  examples, serialize = iter(examples), serializer(features)
  shards = max(1, min(shards, count))
  facts: list[dict[str, Any]] = []
  sizes: list[list[int]] = []
  of_shards: list[list[Block]] = []
  for shard in range(shards):
    file = f"{stem}-{shard:05d}-of-{shards:05d}"
    size = (shard + 1) * count // shards - shard * count // shards
    own = f"{columns.name}-{shard:05d}-of-{shards:05d}.arrow"
    sizes.append([])
    with (
      tfrecord.writer(folder / file) as writer,
      files.publish(columns.with_name(own)) as arrow,
      BlockWriter(arrow, features) as blocks,
    ):
      part = itertools.islice(examples, size)
      while some := list(itertools.islice(part, TOGETHER)):
        for payload in map(serialize, some):
          writer.write(payload)
          sizes[-1].append(len(payload))
        blocks.write(Rows.of(some, features))
    of_shards.append(blocks.blocks)
    facts.append(
      {
        "file": file,
        "examples": writer.number,
        "bytes": writer.size,
        "sha256": writer.digest.hexdigest(),
      }
    )
  if sum(map(len, sizes)) != count or next(examples, None) is not None:
    raise ValueError(f"{stem}: the split does not hold {count} examples.")
  digest = records_sha256([shard["sha256"] for shard in facts])
  Index.of(sizes, digest).save(folder / f"index-{columns.name}.arrow")
  lengths = columns.with_name(f"{columns.name}.lengths.arrow")
  with files.publish(lengths) as arrow, LengthsWriter(arrow) as out:
    for shard, written in enumerate(of_shards):
      out.write(shard, written)
  return {"examples": count, "shards": facts, "records_sha256": digest}


def _write_metadata(
  folder: pathlib.Path,
  *,
  name: str,
  version: str,
  features: tfds.features.FeaturesDict,
  splits: Mapping[str, Mapping[str, Any]],
) -> None:
  template = tfds.core.ShardedFileTemplate(
    data_dir=folder, dataset_name=name, filetype_suffix="tfrecord"
  )
  infos = [
    tfds.core.SplitInfo(
      name=split,
      shard_lengths=[shard["examples"] for shard in fact["shards"]],
      num_bytes=sum(shard["bytes"] for shard in fact["shards"]),
      filename_template=template.replace(split=split),
    )
    for split, fact in splits.items()
  ]
  info = dataset_info.DatasetInfo(
    builder=dataset_info.DatasetIdentity(
      name=name,
      version=tfds.core.Version(version),
      data_dir=str(folder),
      module_name=__name__,
    ),
    description=DESCRIPTION,
    features=features,
    disable_shuffling=True,  # records keep the order of the text
    split_dict=tfds.core.splits.SplitDict(infos),
  )
  info.set_file_format(tfds.core.FileFormat.TFRECORD)
  info.write_to_directory(folder)


class SyntaxPairs(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]  # untyped
  """Parses and encodes raw text as a prepared folder was.

  On many machines (the paths must be visible from each):

    builder = SyntaxPairs(
      prepared="data/sample", texts={"train": ("all.en", "all.de")}, beam=True,
      data_dir="data/all", file_format="array_record")
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(
      beam_options=...))

  From the shell, with the folder's own text, where TensorFlow is installed:

    tfds build jaxsyn/data/store/tfds_builder.py --manual_dir=data/multi30k_en_de
  """

  VERSION = tfds.core.Version(VERSION)
  BUILDER_CONFIGS: ClassVar = [
    tfds.core.BuilderConfig(name=name, description=f"trees on: {name}")
    for name in ("source", "target", "both")
  ]
  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    "The folder that python -m preprocess.build has prepared."
  )

  def __init__(
    self,
    *,
    prepared: str = "",
    texts: Mapping[str, tuple[str, str]] | None = None,
    beam: bool = False,
    **options: Any,
  ):
    """Makes a builder.

    Args:
      prepared: a prepared folder; "" for the manual_dir of TFDS.
      texts: split -> (source file, target file), a line a pair, plain or .gz;
        None for the text of the prepared folder.
      beam: run as a Beam pipeline.
      **options: of every TFDS builder: data_dir, config, file_format, ...
    """
    self._prepared, self._texts, self._beam = prepared, texts, beam
    if prepared and "config" not in options:
      sides = manifests.read(prepared)["sides"]
      if not sides:
        raise InputError(
          f"{prepared} was prepared without trees, which {type(self).__name__}"
          " is for. Set config.prepare.parse.sides and prepare it again."
        )
      options["config"] = "both" if len(sides) == 2 else sides[0]
    super().__init__(**options)

  def _info(self) -> tfds.core.DatasetInfo:
    return self.dataset_info_from_configs(
      description=DESCRIPTION, features=schema.tfds_features(self._sides())
    )

  def _sides(self) -> tuple[str, ...]:
    name = self.builder_config.name
    return schema.SIDES if name == "both" else (name,)

  def _split_generators(
    self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Any]:
    prepared = self._prepared or str(dl_manager.manual_dir)
    manifest = manifests.read(prepared)
    if sorted(manifest["sides"]) != sorted(self._sides()):
      raise InputError(
        f"{prepared} has trees on {manifest['sides']}, but the builder config"
        f" is {self.builder_config.name!r}; choose the one that fits."
      )

    texts = self._texts or {
      split: (
        _own_text(prepared, manifest, split, "source"),
        _own_text(prepared, manifest, split, "target"),
      )
      for split in manifest["splits"]
    }
    return {
      split: self._generate_examples(prepared, source, target)
      for split, (source, target) in texts.items()
    }

  def _generate_examples(
    self, prepared: str, source: str, target: str
  ) -> Any:  # an iterator, or a step of a pipeline
    work = _Encode(prepared)
    if self._beam:
      return (
        f"{source}" >> beam_lib().Create(_line_pairs(source, target))
        | beam_lib().Reshuffle()
        | beam_lib().Map(work)
      )
    return map(work, _line_pairs(source, target))


def beam_lib() -> Any:
  """Apache Beam, which only pipelines need."""
  try:
    import apache_beam
  except ImportError:
    raise InputError(
      "beam=True needs Apache Beam: pip install 'jaxsyn[beam]'."
    ) from None
  return apache_beam


def _own_text(
  prepared: str, manifest: Mapping[str, Any], split: str, side: str
) -> str:
  """The text of a prepared folder, its checksum checked."""
  integrity.check(prepared, manifest, manifests.text_file("", split, side))
  return str(manifests.text_file(prepared, split, side))


def _line_pairs(source: str, target: str) -> Iterator[tuple[int, str, str]]:
  """(line number from 1, source, target) of two parallel files."""
  pairs = zip(lines_of(source), lines_of(target), strict=True)
  try:
    for number, pair in enumerate(pairs, start=1):
      yield number, *pair
  except InputError:  # a ValueError too, which says more
    raise
  except ValueError as error:
    raise InputError(
      f"{source} and {target} must have as many lines ({error})."
    ) from None


class _Encode:
  """Line pair -> (key, example); loads models where it runs."""

  def __init__(self, prepared: str):
    self._prepared = prepared

  @functools.cached_property
  def _models(self) -> tuple[dict[str, UDPipe], dict[str, Any]]:
    manifest = manifests.read(self._prepared)
    vocabularies = tuple(
      manifests.vocabulary(self._prepared, manifest, side)
      for side in schema.SIDES
    )
    parsers = {}
    for side in manifest["sides"]:
      model = manifests.parser_file(self._prepared, manifest, side)
      if model is None:
        raise InputError(
          f"{self._prepared} was prepared from CoNLL-U and names no parser for"
          f" the {side}; set config.prepare.parse.{side}_model."
        )
      parsers[side] = UDPipe(model, manifest["options"]["parse"]["beam"])
      manifests.check_parser(manifest, parsers[side], side)
    # No annotations: what examples hold follows from the sides alone.
    known = {
      "relations": manifests.encoding(manifest)["relations"],
      "vocabularies": vocabularies,
    }
    return parsers, known

  def __getstate__(self) -> dict[str, str]:
    return {"_prepared": self._prepared}  # models cannot be sent

  def __call__(
    self, pair: tuple[int, str, str]
  ) -> tuple[int, dict[str, np.ndarray]]:
    line, *texts = pair
    parsers, known = self._models
    source, target = (
      parsers[side](text) if side in parsers else text
      for side, text in zip(schema.SIDES, texts)
    )
    return line, encode(source, target, line=line, **known)
