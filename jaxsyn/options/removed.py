"""Drops removed options from configs and manifests of older versions."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from jaxsyn.options.fields import ROOT, ConfigPath

_ANY = object()
# Removed options that recorded configs may have, by a pattern of their dotted
# names, and the value that is constant now.
REMOVED: dict[str, Any] = {
  "config.train.writers.mlflow": _ANY,  # it changed no result
  "config.train.prefetch": _ANY,  # nor did this
  "config.optimiser.muon.momentum": 0.95,
  "config.optimiser.muon.iterations": 5,
  "config.model.gru.alignment": 0,
  "config.model.gru.windows.source_dependency.length": 10,
  "config.model.gru.windows.source_dependency.kernel": 3,
  "config.parts.*.source_dependency.length": 10,
  "config.parts.*.source_dependency.kernel": 3,
  "config.parts.*.linear_bias.buckets": 32,
  "config.parts.*.linear_bias.farthest": 128,
  "config.parts.*.tree_bias.longest": 5,
  "config.parts.*.*_bias.share": True,
  "config.parts.*.tree_rotary.base": 10000.0,
  "config.parts.*.factors.sizes": [],
  "config.parts.*.factors.positions": 100,
  "config.parts.*.graph_block.nodes": "words",
  "config.parts.*.graph_block.gates": True,
  "config.parts.*.*_scaled.learn_sigma": False,
  "config.data.citation": _ANY,
  "config.data.homepage": _ANY,
  "config.data.second.longest": 250,
  "config.data.sampled.alternatives": True,
  "config.prepare.clean.empty": True,
  "config.prepare.clean.control": True,
  "config.prepare.clean.nfc": False,
  "config.prepare.parse.labels": 20_000,
  "config.prepare.parse.*.udpipe.beam": 0,
  "config.prepare.vocabulary.sample": 1_000_000,
  "config.train.mesh.data": _ANY,  # the devices that the other axes leave
  "config.optimiser.inverse_sqrt.warmup_start": 1e-7,
  "config.model.gru.dropout_source": 0.0,
  "config.model.gru.dropout_target": 0.0,
  "config.losses.target_heads.count_hidden": False,
  "config.losses.synchronisation.stop_gradient": "none",
}


def without_removed(
  config: Mapping[str, Any], path: ConfigPath = ROOT
) -> dict[str, Any]:
  """Returns a recorded config without removed options.

  Raises:
    InputError: A removed option has another value than the present constant.
  """
  kept = {}
  for name, value in config.items():
    option_path = path / name
    patterns = [p for p in REMOVED if fnmatch.fnmatch(str(option_path), p)]
    if isinstance(value, Mapping) and not patterns:
      kept[name] = without_removed(value, option_path)
    elif not patterns:
      kept[name] = value
    elif REMOVED[patterns[0]] not in (_ANY, value):
      raise option_path.error(
        f"={value!r} was recorded, but this option has been removed, and is "
        f"always {REMOVED[patterns[0]]!r} now. Use an older version of jaxsyn."
      )
  return kept
