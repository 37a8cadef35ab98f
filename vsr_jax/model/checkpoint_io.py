"""Hugging Face directories in and out: safetensors slices stream into stacked, possibly sharded arrays, and back."""

import dataclasses
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Sharding

from vsr_jax.errors import UserError
from vsr_jax.model.config import ModelConfig, parse_config, read_config, to_hf_config
from vsr_jax.model.params import Params, ParamSpec, build, lookup, param_specs
from vsr_jax.model.weight_files import (
    DTYPES,
    StoredTensor,
    read_into,
    same_values,
    stored_tensors,
    write_json,
    write_tensors,
)

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

ShardingOf = Callable[[ParamSpec], Sharding | None]
"""Where a parameter goes; None leaves it on the default device."""

_ALIGNMENT = 64
"""JAX on the CPU adopts host memory that starts at a multiple of this, and copies any other."""


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors of a checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {}
    for spec in param_specs(config):
        for name in tensor_names(config, spec):
            shapes[name] = spec.shape[1:] if spec.stacked else spec.shape
    return shapes


def tensor_names(config: ModelConfig, spec: ParamSpec) -> list[str]:
    """Checkpoint names of one parameter: one a layer when it is stacked."""
    return [spec.hf_name.format(layer=i) for i in range(config.num_layers)] if spec.stacked else [spec.hf_name]


def check_tensors(config: ModelConfig, stored: Mapping[str, StoredTensor], directory: Path) -> None:
    """Accounts for every tensor that the config asks for and for every one that is stored.

    A tied checkpoint may store its head again; rotary tables, which some exporters store, are derived and ignored.

    Raises:
      UserError: the first tensor that is missing, unexpected, or of another shape or no float dtype.
    """
    expected = expected_shapes(config)
    shape_of_head = expected[EMBEDDING]
    if HEAD in stored:
        expected[HEAD] = shape_of_head
    for name, shape in expected.items():
        if name not in stored:
            untied = " (config.json sets tie_word_embeddings to false)" if name == HEAD else ""
            raise UserError(f"{directory}: tensor {name} of shape {shape} is missing from the checkpoint{untied}")
        found = stored[name]
        if found.shape != shape:
            raise UserError(f"{found.file}: tensor {name} has shape {found.shape}, config.json asks for {shape}")
        if found.dtype not in DTYPES:
            raise UserError(
                f"{found.file}: tensor {name} of shape {shape} has dtype {found.dtype}; supported are "
                f"{', '.join(DTYPES)}, as in unquantised checkpoints"
            )
    extra = sorted(n for n in stored if n not in expected and not n.endswith("rotary_emb.inv_freq"))
    if extra:
        raise UserError(
            f"{stored[extra[0]].file}: unexpected tensor {extra[0]} of shape {stored[extra[0]].shape} "
            f"({len(extra)} in all) for model_type {config.model_type}"
        )


def settle_head(config: ModelConfig, stored: Mapping[str, StoredTensor]) -> tuple[ModelConfig, str | None]:
    """The config whose tie flag says what the checkpoint holds, and a note where config.json is not the whole story.

    A head that is stored beside a tied embedding wins when it differs, and is left out when it is the same.
    """
    if not config.tie_word_embeddings or HEAD not in stored:
        return config, None
    tied = f"config.json ties the output head to the embedding, and the checkpoint stores {HEAD}"
    if same_values(stored[HEAD], stored[EMBEDDING]):
        return config, f"{tied} too; both are equal, the embedding is used"
    return dataclasses.replace(config, tie_word_embeddings=False), f"{tied}, which differs; the stored head is used"


def load_params(
    config: ModelConfig, directory: Path, *, dtype: str | None = None, sharding_of: ShardingOf | None = None
) -> tuple[ModelConfig, Params]:
    """Loads every parameter of the table; nothing is ever filled in.

    Host memory peaks at the parameters that live on the host plus two pieces of `weight_files.PIECE` bytes: stacked
    arrays are filled layer by layer, and on the CPU become the JAX arrays themselves. With shardings each process
    reads the slices of its own devices only (and, to compare, both matrices of a tied checkpoint with a stored head).

    Args:
      config: from the directory's `config.json`.
      directory: a Hugging Face model directory.
      dtype: dtype of the arrays; as stored when None.
      sharding_of: see `ShardingOf`.

    Returns:
      The config, untied when the file holds a head that differs from the embedding, and the parameters.

    Raises:
      UserError: a tensor is missing, unexpected, or has another shape or dtype than the config says.
    """
    stored = stored_tensors(directory)
    check_tensors(config, stored, directory)
    config, note = settle_head(config, stored)
    if note:
        _note(f"{directory}: {note}")

    def load(spec: ParamSpec) -> jax.Array:
        parts = [stored[name] for name in tensor_names(config, spec)]
        first = parts[0]
        other = next((part for part in parts if part.dtype != first.dtype), None)
        if dtype is None and other is not None:
            raise UserError(
                f"{directory}: tensor {first.name} has dtype {first.dtype} but {other.name} has {other.dtype}; "
                "choose one dtype"
            )
        kind = np.dtype(dtype) if dtype else DTYPES[first.dtype]
        return _place(spec, lambda index: _read(spec, parts, index, kind), sharding_of and sharding_of(spec))

    return config, build((spec, load(spec)) for spec in param_specs(config))


def _note(text: str) -> None:
    if jax.process_index() == 0:
        print(f"note: {text}", file=sys.stderr)


def _read(spec: ParamSpec, parts: Sequence[StoredTensor], index: Sequence[slice], kind: np.dtype) -> np.ndarray:
    """`parameter[index]` on the host, in memory that JAX on the CPU adopts."""
    shape = tuple(len(range(*part.indices(size))) for part, size in zip(index, spec.shape, strict=True))
    size = math.prod(shape) * kind.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % _ALIGNMENT
    out = memory[offset : offset + size].view(kind).reshape(shape)
    if spec.stacked:
        for row, layer in zip(out, range(*index[0].indices(spec.shape[0])), strict=True):
            read_into(parts[layer], index[1:], row)
    else:
        read_into(parts[0], index, out)
    return out


def _place(spec: ParamSpec, read: Callable[[Sequence[slice]], np.ndarray], sharding: Sharding | None) -> jax.Array:
    """Reads and places shard after shard; a slice that several devices hold is read once."""
    if sharding is None:
        return jax.block_until_ready(jax.device_put(read([slice(None)] * len(spec.shape))))
    holders: dict[tuple[tuple[int, int], ...], list[Any]] = {}
    for device, index in sharding.addressable_devices_indices_map(spec.shape).items():
        assert index is not None
        bounds = tuple(part.indices(size)[:2] for part, size in zip(index, spec.shape, strict=True))
        holders.setdefault(bounds, []).append(device)
    shards: list[jax.Array] = []
    for bounds, devices in holders.items():
        host = read([slice(*bound) for bound in bounds])
        shards += [jax.block_until_ready(jax.device_put(host, device)) for device in devices]
    return jax.make_array_from_single_device_arrays(spec.shape, sharding, shards)


def load_model(
    path: str | os.PathLike[str],
    dtype: str = "float32",
    *,
    param_dtype: str | None = None,
    max_position: int | None = None,
    revision: str | None = None,
    keep_padded_rows: bool = False,
    sharding_of: ShardingOf | None = None,
) -> tuple[ModelConfig, Params]:
    """Loads a model from a local directory or a hub id.

    Args:
      path: directory with `config.json` and safetensors, or a hub id such as `Qwen/Qwen3-8B-Base`.
      dtype: `float32` or `bfloat16`, for computing and for the parameters.
      param_dtype: dtype of the parameters where it differs: float32 masters under bfloat16 computing, say.
      max_position: explicit context length in place of the config's.
      revision: hub revision.
      keep_padded_rows: take the rows of the vocabulary beyond the tokenizer for tokens, as the reference
        implementation does in its softmax.
      sharding_of: where each parameter goes, see `load_params`.

    Returns:
      `(config, params)`. When the directory has a tokenizer, `config.num_tokens` is its number of ids, and the
      rows beyond are never sampled nor counted in a softmax.

    Raises:
      UserError: bad directory, config or weights, in one line.
    """
    from vsr_jax.model.resolve import resolve_model

    directory = Path(resolve_model(os.fspath(path), revision=revision).directory)
    file = directory / "config.json"
    raw = read_config(file)
    config = parse_config(raw, where=str(file), dtype=dtype, max_position=max_position)
    stated = raw.get("max_position_embeddings")
    if config.max_position != stated:
        _note(f"{directory}: context of {config.max_position} tokens by override; config.json says {stated}")
    if not keep_padded_rows:
        # Before the weights, so that what the tokenizer needs in passing does not add to their peak.
        config = dataclasses.replace(config, num_tokens=_known_tokens(directory, config.vocab_size))
    return load_params(config, directory, dtype=param_dtype or dtype, sharding_of=sharding_of)


def _known_tokens(directory: Path, vocab_size: int) -> int:
    """Ids of the directory's tokenizer, or all rows where it has none."""
    if not any((directory / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")):
        return vocab_size
    from vsr_jax.data.tokenizer import load_tokenizer, token_count

    count = token_count(load_tokenizer(directory))
    if count > vocab_size:
        raise UserError(f"{directory}: the tokenizer has {count} ids but the embedding only {vocab_size} rows")
    return count


def save_model(
    config: ModelConfig,
    params: Params,
    directory: Path,
    *,
    dtype: str = "float32",
    max_shard_bytes: int = 5_000_000_000,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Writes `config.json` and safetensors that the reference implementation loads.

    Every row of the vocabulary is written, padding included. `config.json` comes last: a directory that has one is
    complete. On a mesh of several processes all must call; the first one writes.

    Args:
      directory: made when absent.
      dtype: `float32` or `bfloat16`.
      max_shard_bytes: weights beyond it are split into shards with an index.
      extra: fields to keep in `config.json` beside those of the decoder, such as `eos_token_id`.

    Raises:
      UserError: another dtype, or the directory holds other weight files.
    """
    if dtype not in ("float32", "bfloat16"):
        raise UserError(f"dtype {dtype!r} is not supported; use float32 or bfloat16")
    kind = np.dtype(dtype)
    write = jax.process_index() == 0
    if write:
        directory.mkdir(parents=True, exist_ok=True)
    places = {
        name: (spec, layer) for spec in param_specs(config) for layer, name in enumerate(tensor_names(config, spec))
    }

    def make(name: str) -> np.ndarray:
        spec, layer = places[name]
        value = lookup(params, spec)
        return _on_host(value[layer] if spec.stacked else value).astype(kind, copy=False)

    order = sorted(expected_shapes(config).items(), key=lambda item: _layer_order(item[0]))
    sizes = [(name, math.prod(shape) * kind.itemsize) for name, shape in order]
    write_tensors(directory, sizes, make, max_shard_bytes=max_shard_bytes, write=write)
    if write:
        write_json(directory / "config.json", {**(extra or {}), **to_hf_config(config, torch_dtype=dtype)})


def _layer_order(name: str) -> tuple[int, int]:
    """Embedding, layers by number, final norm, head: a layer's tensors lie together, as in published checkpoints."""
    if name.startswith("model.layers."):
        return 1, int(name.split(".")[2])
    return (0, 0) if name == EMBEDDING else (2, 0)


def _on_host(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        value = multihost_utils.process_allgather(value, tiled=True)
    return np.asarray(value)
