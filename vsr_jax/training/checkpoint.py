"""Checkpoints of a training state, through Orbax."""

import json
import os
from pathlib import Path
from typing import TypeVar

import jax
import orbax.checkpoint as ocp

from vsr_jax.errors import UserError

T = TypeVar("T")


def _manager(directory: Path, keep: int = 2) -> ocp.CheckpointManager:
    options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
    return ocp.CheckpointManager(directory.absolute(), options=options)


def save(directory: Path, step: int, state: object) -> None:
    """Writes the state of `step`; the newest two are kept. Returns when the files are complete.

    Raises:
      UserError: the disk refuses. Earlier checkpoints stay as they are.
    """
    try:
        with _manager(directory) as manager:
            manager.save(step, args=ocp.args.StandardSave(state), force=True)
    except OSError as error:
        raise UserError(
            f"{directory}: could not save the checkpoint of step {step} ({error}); earlier ones are kept"
        ) from None


def restore_latest(directory: Path, like: T) -> tuple[int, T] | None:
    """The newest checkpoint as `(step, state)`, shaped and placed like `like`; None where there is none."""
    if not directory.is_dir():
        return None
    with _manager(directory) as manager:
        step = manager.latest_step()
        if step is None:
            return None
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        return step, manager.restore(step, args=ocp.args.StandardRestore(abstract))


def write_json(path: Path, value: object) -> None:
    """Writes JSON beside the target and renames it, so that a file that can be seen is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
    os.replace(temporary, path)


def read_metrics(path: Path, *, before: int | None = None) -> list[dict[str, float]]:
    """Lines of a metrics file, optionally only steps below `before`. A last line torn by a kill is dropped."""
    if not path.exists():
        return []
    rows: list[dict[str, float]] = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return [row for row in rows if before is None or row["step"] < before]


def rewind_metrics(path: Path, step: int) -> None:
    """Drops the lines of steps that will be run again."""
    rows = read_metrics(path, before=step)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.replace(temporary, path)
