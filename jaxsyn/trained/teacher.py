"""A run that teaches another: its attention, made for every batch of training.

Before this file: `workdir`, `parameters`, and the loss that reads what this makes,
`jaxsyn.training.distillation`. After it: `train`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import Array

from jaxsyn.config import Config
from jaxsyn.data.loader.change import Change
from jaxsyn.data.loader.columns import Batch
from jaxsyn.data.store import manifests
from jaxsyn.models import contract
from jaxsyn.models.contract import EncoderDecoder, view_of
from jaxsyn.options import CONFIG, At
from jaxsyn.plan import Plan, resolve
from jaxsyn.syntax.heads import of_heads
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.trained import parameters, workdir
from jaxsyn.training.distillation import TAUGHT, Distillation, check_heads


class Teacher:
  """What is added to batches.

  Attributes:
    features: of the data, that the teacher reads.
    told: who teaches, for the log.
  """

  def __init__(
    self,
    loss: Distillation,
    at: At,
    config: Config,
    manifest: Mapping[str, Any],
  ):
    """Reads the teacher's parameters.

    Args:
      loss: that says who teaches.
      at: where its options stand.
      config: of the run that learns.
      manifest: of its data.

    Raises:
      InputError: no such run or checkpoint, or one that reads other subwords,
        labels or trees.
    """
    if not loss.teacher:
      raise (at / "teacher").error(
        "='' names nobody: give the folder of a trained run that reads trees, "
        f"as in --{at / 'teacher'}=runs/pascal."
      )
    run = workdir.open_run(loss.teacher)
    plan = resolve(run.config, run.manifest)
    _check_alike(loss, at, config, manifest, run)
    spec = plan.spec
    site = spec.site("encoder")
    check_heads(
      *(at, "teacher_", loss.teacher_layer, loss.teacher_heads),
      *(site.layers, site.heads),
    )
    self._layer = loss.teacher_layer % site.layers
    self._heads = loss.teacher_heads
    shown = (*spec.shown, ("encoder", self._layer))
    model = contract.make(dataclasses.replace(spec, shown=shown))
    self.features = plan.translation_features
    found = parameters.read(
      run,
      plan,
      manifests.features_for(run.manifest, self.features),
      checkpoint=loss.checkpoint,
    )
    asked = loss.checkpoint or run.config.decode.checkpoint
    self.told = f"taught by {loss.teacher}, {parameters.title(found, asked)}"
    self._params = found.params
    self._attention = jax.jit(self._attention_of(model))

  def after(self, change: Change | None) -> Change:
    """A caller's own function on every batch, and then this."""

    def both(batch: Batch) -> Batch:
      batch = batch if change is None else change(batch)
      return {**batch, TAUGHT: self(batch)}

    return both

  def __call__(self, batch: Batch) -> np.ndarray:
    """Weights of the teacher's heads (BHSS), of every source of a batch."""
    source = {n: x for n, x in batch.items() if n.startswith("source_")}
    return np.asarray(self._attention(self._params, source), np.float32)

  def _attention_of(self, model: EncoderDecoder) -> Any:
    def attention(params: Any, batch: Mapping[str, Array]) -> Array:
      _, state = model.apply(
        {"params": params},
        batch["source_id_BS"],
        view_of(batch, "source"),
        method="encode",
        mutable=[COLLECTION],
      )
      (found,) = Maps.of(state).find(
        place="encoder", layer=self._layer, part="", kind="weight_BHQM"
      )
      return of_heads(self._heads, found.value, axis=1)

    return attention


def read(plan: Plan, manifest: Mapping[str, Any]) -> Teacher | None:
  """Who teaches a run; None: nobody.

  Args:
    plan: of the run.
    manifest: of its data.

  Raises:
    InputError: as `Teacher`.
  """
  for name, loss in plan.config.losses:
    if isinstance(loss, Distillation) and loss.weight:
      return Teacher(loss, CONFIG / "losses" / name, plan.config, manifest)
  return None


def _check_alike(
  loss: Distillation,
  at: At,
  config: Config,
  manifest: Mapping[str, Any],
  run: workdir.Run,
) -> None:
  """Raises InputError for a teacher that would read a batch otherwise."""

  def refuse(what: str) -> None:
    raise (at / "teacher").error(
      f"={loss.teacher!r} has {what} than {config.data.directory}; train the "
      "teacher on the same prepared data."
    )

  ours, theirs = (
    page["vocabulary"]["source"]["sha256"] for page in (manifest, run.manifest)
  )
  if ours != theirs:
    refuse("another vocabulary of the source")
  for name in ("relations", "labels"):
    ours, theirs = (
      dict(page.get(name) or {}).get("source")
      for page in (manifest, run.manifest)
    )
    if theirs and ours != theirs:
      refuse(f"other {name} of the source")
  trees = run.config.data.tree, config.data.tree
  if any(tree.control for tree in trees) and trees[0] != trees[1]:
    raise (at / "teacher").error(
      f"={loss.teacher!r} was trained with config.data.tree="
      f"{run.config.data.tree}, and this run has {config.data.tree}; set it as "
      "the teacher's."
    )
