"""What accelerators could do at most, by the makers' data sheets.

Rates are of one JAX device, dense (without sparsity). NVIDIA: the data sheets of
H200, H100 (SXM, PCIe, NVL), A100, L4 and T4. Google: the pages "TPU v4", "v5e",
"v5p" and "v6e" of Cloud TPU's documentation.
"""

from __future__ import annotations

import dataclasses

import jax


@dataclasses.dataclass(frozen=True)
class Chip:
  """One device.

  Attributes:
    flops: peak of products in bfloat16, FLOP/s; of a T4, which has none,
      in float16.
    bandwidth: of its memory, bytes/s.
  """

  flops: float
  bandwidth: float


# By the beginning of `device_kind`; the longest that fits counts.
CHIPS = {
  "NVIDIA H200": Chip(989e12, 4.8e12),
  "NVIDIA H100": Chip(989e12, 3.35e12),
  "NVIDIA H100 PCIe": Chip(756e12, 2.0e12),
  "NVIDIA H100 NVL": Chip(835e12, 3.9e12),
  "NVIDIA A100": Chip(312e12, 1.555e12),
  "NVIDIA A100-SXM4-80GB": Chip(312e12, 2.039e12),
  "NVIDIA A100 80GB PCIe": Chip(312e12, 1.935e12),
  "NVIDIA L4": Chip(121e12, 0.3e12),
  "Tesla T4": Chip(65e12, 0.32e12),
  "TPU v4": Chip(275e12, 1.2e12),
  "TPU v5 lite": Chip(197e12, 0.819e12),
  "TPU v5e": Chip(197e12, 0.819e12),
  "TPU v5": Chip(459e12, 2.765e12),
  "TPU v5p": Chip(459e12, 2.765e12),
  "TPU v6 lite": Chip(918e12, 1.64e12),
  "TPU v6e": Chip(918e12, 1.64e12),
}


def chip(kind: str) -> Chip | None:
  """The chip of a `device_kind`; None where it is not known (a CPU)."""
  names = [name for name in CHIPS if f"{kind} ".startswith(name)]
  return CHIPS[max(names, key=len)] if names else None


def peak_flops() -> float | None:
  """Of all devices together; None where the kind is not known (a CPU)."""
  known = chip(jax.devices()[0].device_kind)
  return known.flops * jax.device_count() if known else None
