"""Checkpoints of a training state, through Orbax: whole or not there, checked bit by bit, restored on any mesh.

    with Checkpoints(run_folder / "checkpoints", keep=2, keep_every=50) as checkpoints:
        found = checkpoints.restore_latest(state)        # (step, state, extra) placed like `state`, or None
        checkpoints.save(step, state, {"cursor": 12})    # returns once the values are copied; the update may donate

`save` and `restore_latest` do the same for a caller that keeps nothing open. Directories may be local or `gs://`.
"""

import json
import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from etils import epath
from jax import lax

from vsr_jax.errors import UserError

T = TypeVar("T")


class Checkpoints:
    """A directory of checkpoints by step. A context manager; leaving it waits for the last save.

    Every checkpoint holds a fingerprint of each array. One that cannot be read back exactly is skipped with a warning
    and the one before it is used. On several processes all must make the same calls.

    Args:
      directory: local path or `gs://` address; made when absent.
      keep: newest checkpoints that stay.
      keep_every: steps divisible by it stay for good; none when None.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep: int = 2, keep_every: int | None = None):
        self.directory = epath.Path(directory).absolute()
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, keep_period=keep_every, enable_async_checkpointing=True, create=True
        )
        handlers = {"state": ocp.StandardCheckpointHandler(), "extra": ocp.JsonCheckpointHandler()}
        self._manager = ocp.CheckpointManager(self.directory, options=options, item_handlers=handlers)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.wait()
        finally:
            self._manager.close()

    def save(self, step: int, state: Any, extra: Mapping[str, Any] | None = None) -> None:
        """Starts writing a checkpoint; the caller may change or donate the state at once.

        Args:
          step: names the checkpoint; one that is there already is replaced.
          state: tree of arrays.
          extra: JSON values beside it: data cursor, curriculum, settings.

        Raises:
          UserError: this save or the one before it could not be written. Earlier ones stay as they are.
        """
        self.wait()
        try:
            if step in self._manager.all_steps():
                self._manager.delete(step)
            marks = [int(mark) for mark in jax.device_get(fingerprints(state))]
            items = ocp.args.Composite(
                state=ocp.args.StandardSave(state),
                extra=ocp.args.JsonSave({"marks": marks, "extra": dict(extra or {})}),
            )
            self._manager.save(step, args=items, force=True)
        except Exception as error:
            raise self._refused(step, error) from None

    def wait(self) -> None:
        """Returns when the last save is complete. Raises UserError when it could not be written."""
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._refused(None, error) from None

    def _refused(self, step: int | None, error: Exception) -> UserError:
        what = "the last checkpoint" if step is None else f"the checkpoint of step {step}"
        return UserError(f"{self.directory}: could not save {what} ({_one_line(error)}); earlier ones are kept")

    def restore_latest(self, like: T) -> tuple[int, T, dict[str, Any]] | None:
        """The newest checkpoint that reads back exactly: `(step, state, extra)`; None where there is none.

        Args:
          like: tree of arrays, or of `jax.ShapeDtypeStruct` with shardings, that says shapes, dtypes and places. The
            mesh and the number of processes may differ from those that saved.

        Raises:
          UserError: the newest readable checkpoint holds another tree: of another model or optimizer.
        """
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                self._check_tree(step, abstract)
                items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), extra=ocp.args.JsonRestore())
                found = self._manager.restore(step, args=items)
                state, extra = found["state"], found["extra"]
                marks = [int(mark) for mark in jax.device_get(fingerprints(state))]
                if marks != extra["marks"]:
                    raise ValueError("its values are not those that were saved")
            except UserError:
                raise
            except Exception as error:
                _warn(f"{self.directory}: checkpoint {step} cannot be read and is skipped ({_one_line(error)})")
                continue
            return step, state, extra["extra"]
        return None

    def _check_tree(self, step: int, abstract: Any) -> None:
        """Tells a checkpoint of something else, which is a mistake of the user, from one that is damaged."""
        held = self._manager.item_metadata(step)["state"]
        shapes = lambda tree: {  # noqa: E731
            jax.tree_util.keystr(path, simple=True, separator="."): tuple(x.shape)
            for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]
        }
        there, wanted = shapes(getattr(held, "tree", held)), shapes(abstract)
        for name in sorted(there.keys() | wanted.keys()):
            if there.get(name) != wanted.get(name):
                raise UserError(
                    f"{self.directory}: checkpoint {step} holds {name} of shape {there.get(name)}, this run has "
                    f"{wanted.get(name)}; it is of another model or optimizer; choose another folder"
                )


@jax.jit
def fingerprints(tree: Any) -> list[jax.Array]:
    """One uint32 for each array: the sum of its elements' bits, each mixed with its place; the same on any mesh."""

    def mark(x: jax.Array) -> jax.Array:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        bits = x if x.dtype == bool else lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * min(x.dtype.itemsize, 4)}"))
        place = jnp.zeros(bits.shape, jnp.uint32)
        for axis in range(bits.ndim):
            place = place * jnp.uint32(0x01000193) + lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        return _mix(bits.astype(jnp.uint32) ^ _mix(place)).sum(dtype=jnp.uint32)

    return [mark(jnp.asarray(x)) for x in jax.tree.leaves(tree)]


def _mix(x: jax.Array) -> jax.Array:
    """A bijection of uint32 in which every bit of the result depends on every bit given (MurmurHash3's finaliser)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def save(directory: str | os.PathLike[str], step: int, state: Any, *, keep: int = 2) -> None:
    """Writes the state of `step`; the newest `keep` stay. Returns when the files are complete.

    Raises:
      UserError: the disk refuses. Earlier checkpoints stay as they are.
    """
    with Checkpoints(directory, keep=keep) as checkpoints:
        checkpoints.save(step, state)


def restore_latest(directory: str | os.PathLike[str], like: T) -> tuple[int, T] | None:
    """The newest checkpoint as `(step, state)`, shaped and placed like `like`; None where there is none.

    Raises:
      UserError: as `Checkpoints.restore_latest`.
    """
    if not epath.Path(directory).is_dir():
        return None
    with Checkpoints(directory) as checkpoints:
        found = checkpoints.restore_latest(like)
    return found and found[:2]


def check_same_settings(
    folder: object, extra: Mapping[str, Any], wanted: Mapping[str, Any], free: Collection[str] = ()
) -> None:
    """Compares the settings that a checkpoint was saved with, `extra["settings"]`, with those to go on with.

    Args:
      free: names that may differ.

    Raises:
      UserError: names the first field that differs.
    """
    held = extra.get("settings")
    if held is None:
        raise UserError(f"{folder}: the checkpoint does not say its settings; choose another folder")
    for name in sorted((held.keys() | wanted.keys()) - set(free)):
        if held.get(name) != wanted.get(name):
            raise UserError(
                f"{folder} holds a run with {name} = {held.get(name)!r}, this one has {wanted.get(name)!r}; go on with "
                "the same value, or choose another folder"
            )


def _one_line(error: Exception) -> str:
    text = re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
    return text if len(text) <= 200 else text[:200] + " ..."


def _warn(text: str) -> None:
    if jax.process_index() == 0:
        print(f"warning: {text}", file=sys.stderr)


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


def untimed(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of metrics without what the clock decided: the rest is the same in every run of the same settings."""
    return {name: x for name, x in line.items() if not name.startswith(("seconds", "tokens_per_s"))}


def rewind_metrics(path: Path, step: int) -> None:
    """Drops the lines of steps that will be run again."""
    rows = read_metrics(path, before=step)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.replace(temporary, path)
