"""Safetensors files of a model directory: where each tensor lies, slices of it read lean, new files written whole."""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from vsr_jax.errors import UserError
from vsr_jax.model.config import read_config

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"

DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}
"""Stored dtypes that a parameter may have, by their safetensors names."""

PIECE = 32 * 2**20
"""Bytes read at a time. The library maps the file and copies what is asked for; both count as memory in use."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file. `dtype` is the safetensors name, such as `BF16`."""

    name: str
    file: Path
    shape: tuple[int, ...]
    dtype: str


def stored_tensors(directory: Path) -> dict[str, StoredTensor]:
    """Every tensor of a model directory by name, from the headers of its files; single-file and sharded alike.

    Raises:
      UserError: no weights, a shard that is missing or torn, or an index that disagrees with its shards.
    """
    if (directory / SINGLE).exists():  # where both forms lie, the reference implementation reads this one
        return {tensor.name: tensor for tensor in _header(directory / SINGLE)}
    index = directory / INDEX
    if not index.exists():
        raise UserError(f"{directory}: holds neither {SINGLE} nor {INDEX}")
    table = read_config(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(file, str) for file in table.values()):
        raise UserError(f"{index}: field weight_map must map tensor names to file names")
    found: dict[str, StoredTensor] = {}
    for name in sorted(set(table.values())):
        shard = directory / name
        if Path(name).name != name or not shard.exists():
            raise UserError(f"{shard}: shard named in {index.name} is missing; download it again")
        for tensor in _header(shard):
            if table.get(tensor.name) != name:
                raise UserError(
                    f"{shard}: holds tensor {tensor.name}, which {index.name} places in {table.get(tensor.name)}"
                )
            found[tensor.name] = tensor
    lost = sorted(table.keys() - found.keys())
    if lost:
        raise UserError(f"{directory / table[lost[0]]}: lacks tensor {lost[0]}, which {index.name} places there")
    return found


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({error})") from None


def _header(path: Path) -> list[StoredTensor]:
    with _open(path) as file:
        parts = [(name, file.get_slice(name)) for name in file.keys()]  # noqa: SIM118 - not a mapping
        return [StoredTensor(name, path, tuple(part.get_shape()), part.get_dtype()) for name, part in parts]


def read_into(tensor: StoredTensor, index: Sequence[slice], out: np.ndarray) -> None:
    """Reads `tensor[index]` into `out`, cast to its dtype.

    Args:
      index: one slice of step 1 a dimension.
      out: array of the shape of the slice, filled in place.
    """
    bounds = [part.indices(size)[:2] for part, size in zip(index, tensor.shape, strict=True)]
    first, end = bounds[0]
    rest = tuple(slice(*bound) for bound in bounds[1:])
    # Only the columns asked for are copied, but the pages of whole rows are mapped.
    step = max(1, PIECE // (math.prod(tensor.shape[1:]) * DTYPES[tensor.dtype].itemsize))
    for start in range(first, end, step):
        stop = min(start + step, end)
        # Opened anew for each piece: closing unmaps what was read, which would otherwise add up to the whole file.
        with _open(tensor.file) as file:
            out[start - first : stop - first] = file.get_slice(tensor.name)[(slice(start, stop), *rest)]


def same_values(a: StoredTensor, b: StoredTensor) -> bool:
    """Whether two stored matrices of one shape hold the same numbers, compared piece by piece."""
    step = max(1, PIECE // (math.prod(a.shape[1:]) * 4))
    whole = [slice(None)] * (len(a.shape) - 1)
    for start in range(0, a.shape[0], step):
        stop = min(start + step, a.shape[0])
        pieces = [np.empty((stop - start, *a.shape[1:]), np.float32) for _ in range(2)]
        for tensor, piece in zip((a, b), pieces, strict=True):
            read_into(tensor, [slice(start, stop), *whole], piece)
        if not (pieces[0] == pieces[1]).all():
            return False
    return True


def write_tensors(
    directory: Path,
    sizes: Sequence[tuple[str, int]],
    make: Callable[[str], np.ndarray],
    *,
    max_shard_bytes: int,
    write: bool = True,
) -> None:
    """Writes tensors as one file, or as shards with their index; one shard is in memory at a time.

    A file gets its name when it is complete.

    Args:
      directory: existing where `write` is set.
      sizes: name and bytes of each tensor, in the order to store.
      make: gives the tensor of a name; called once for each, in order.
      max_shard_bytes: a shard grows to at most this size, unless a single tensor is larger.
      write: False only calls `make`: on a mesh of several processes all take part in it and one writes.

    Raises:
      UserError: the directory holds weight files that would be left beside the new ones.
    """
    groups = _groups(sizes, max_shard_bytes)
    total = len(groups)
    files = [SINGLE] if total == 1 else [f"model-{i + 1:05d}-of-{total:05d}.safetensors" for i in range(total)]
    keep = {*files, INDEX} if total > 1 else set(files)
    present = directory.iterdir() if directory.is_dir() else ()
    for name in sorted(f.name for f in present if f.suffix == ".safetensors" or f.name == INDEX):
        if name not in keep:
            raise UserError(f"{directory / name}: belongs to other weights; choose an empty directory or delete it")
    for file, names in zip(files, groups, strict=True):
        tensors = {name: make(name) for name in names}
        if write:
            temporary = directory / f".{file}.tmp"
            temporary.touch()
            mode = temporary.stat().st_mode
            save_file(tensors, temporary, metadata={"format": "pt"})
            temporary.chmod(mode)  # the library leaves a file that only its owner can read
            os.replace(temporary, directory / file)
    if total > 1 and write:
        weight_map = {name: file for file, names in zip(files, groups, strict=True) for name in names}
        metadata = {"total_size": sum(size for _, size in sizes)}
        write_json(directory / INDEX, {"metadata": metadata, "weight_map": weight_map})


def _groups(sizes: Iterable[tuple[str, int]], limit: int) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    held = 0
    for name, size in sizes:
        if groups[-1] and held + size > limit:
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += size
    return groups


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON file that is whole or absent."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(temporary, path)
