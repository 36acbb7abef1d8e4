"""Multi30k task 1, English to German (Elliott et al. 2016), 29,000 captions.

Prepare: jaxsyn prepare --config multi30k_en_de
Train:   jaxsyn train --config multi30k_en_de:pascal \
           --workdir runs/pascal
Sizes:   Transformer-Tiny of Wu et al. 2021: 4+4 layers, width 128,
         feed-forward 256, 4 heads, joint vocabulary of 8,000; dropout 0.2,
         theirs is 0.3.
Licence: the captions are for non-commercial research and education.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import base, systems

COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
ADDRESS = (
  "https://raw.githubusercontent.com/multi30k/dataset/{}/data/task1/raw/{}"
)
PARTS = {
  "train": "train",
  "validation": "val",
  "test_2016": "test_2016_flickr",
  "test_2017": "test_2017_flickr",
}
SHA256 = {
  "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
  "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
  "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
  "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
  "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
  "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
  "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
  "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
}

CITATION = (
  "@inproceedings{elliott-etal-2016-multi30k, title = {Multi30K: Multilingual"
  " English-German Image Descriptions}, author = {Elliott, Desmond and Frank,"
  " Stella and Sima'an, Khalil and Specia, Lucia}, booktitle = {Proceedings of"
  " the 5th Workshop on Vision and Language}, pages = {70--74}, year = {2016},"
  " doi = {10.18653/v1/W16-3210}}"
)


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  return systems.apply(multi30k("en", "de"), system)


def multi30k(source: str, target: str) -> ml_collections.ConfigDict:
  """The settings of one direction; files are fetched if they are not there."""
  config = base.data_set(f"multi30k_{source}_{target}", source, target)
  config.data.test = ("test_2016", "test_2017")
  config.data.citation = CITATION
  config.data.homepage = "https://github.com/multi30k/dataset"
  base.small_corpus(config)
  config.train.steps = 7000  # 27 epochs
  for split, stem in PARTS.items():
    names = tuple(f"{stem}.{side}.gz" for side in (source, target))
    config.prepare.splits[split] = names
    config.prepare.downloads += tuple(
      (name, ADDRESS.format(COMMIT, name), SHA256[name]) for name in names
    )
  return config
