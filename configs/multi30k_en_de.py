"""Multi30k task 1, English to German (Elliott et al. 2016), 29,000 captions.

Prepare: jaxsyn prepare --config multi30k_en_de
Train:   jaxsyn train --config multi30k_en_de:pascal \
           --workdir runs/pascal
Tests:   test_2016, test_2017, test_2018 and test_2017_mscoco (ambiguous COCO). The
         last two are optional: if their files are not in --raw_dir and cannot be
         downloaded, they are skipped with a warning.
Results: transformer, three seeds, two CPU cores: after 19 minutes 39.2 BLEU on
         test_2016 and 31.0 on test_2017 (docs/results.md).
Sizes:   Transformer-Tiny of Wu et al. 2021: 4+4 layers, width 128,
         feed-forward 256, 4 heads, joint vocabulary of 8,000; but dropout
         0.2 instead of 0.3.
License: the captions are for non-commercial research and education.
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
  "test_2018": "test_2018_flickr",
  "test_2017_mscoco": "test_2017_mscoco",
}
TESTS = {  # by the language other than English
  "de": ("test_2016", "test_2017", "test_2018", "test_2017_mscoco"),
  "fr": ("test_2016", "test_2017", "test_2018", "test_2017_mscoco"),
  "cs": ("test_2016", "test_2018"),
}
OPTIONAL = ("test_2018", "test_2017_mscoco")
SHA256 = {  # at this commit; others are recorded at the first download
  "test_2016_flickr.cs.gz": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
  "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
  "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
  "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
  "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
  "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
  "test_2017_flickr.fr.gz": "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496",
  "train.cs.gz": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
  "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
  "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
  "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
  "val.cs.gz": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
  "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
  "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
  "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
}


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  return systems.apply(multi30k("en", "de"), system)


def multi30k(source: str, target: str) -> ml_collections.ConfigDict:
  """Returns the config of one Multi30k language pair, with download URLs."""
  config = base.data_set(f"multi30k_{source}_{target}", source, target)
  (other,) = {source, target} - {"en"}
  config.data.test = TESTS[other]
  config.prepare.optional = tuple(t for t in TESTS[other] if t in OPTIONAL)
  base.small_corpus(config)
  config.train.steps = 7000  # 27 epochs
  for split in ("train", "validation", *TESTS[other]):
    stem = PARTS[split]
    names = tuple(f"{stem}.{side}.gz" for side in (source, target))
    config.prepare.splits[split] = names
    config.prepare.downloads += tuple(
      (name, ADDRESS.format(COMMIT, name), SHA256.get(name, ""))
      for name in names
    )
  return config
