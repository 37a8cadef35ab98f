"""Hugging Face directories in and out: safetensors slices stream into stacked arrays, and back."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from vsr_jax.errors import UserError
from vsr_jax.model.config import ModelConfig, parse_config, read_config, to_hf_config
from vsr_jax.model.params import Params, ParamSpec, build, lookup, param_specs

_DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}


def weight_files(directory: Path) -> dict[str, Path]:
    """Maps every stored tensor name to its safetensors file, single-file and sharded checkpoints alike."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        table = read_config(index).get("weight_map")
        if not isinstance(table, dict):
            raise UserError(f"{index}: field weight_map is missing")
        for name in sorted(set(table.values())):
            if not (directory / name).exists():
                raise UserError(f"{directory / name}: shard named in {index.name} is missing; download it again")
        return {tensor: directory / file for tensor, file in table.items()}
    single = directory / "model.safetensors"
    if not single.exists():
        raise UserError(f"{directory}: holds neither model.safetensors nor model.safetensors.index.json")
    with _open(single) as file:
        return dict.fromkeys(file.keys(), single)


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({error})") from None


def load_params(config: ModelConfig, directory: Path, *, dtype: str | None = None) -> tuple[ModelConfig, Params]:
    """Loads every parameter of the table and accounts for every stored tensor.

    Host memory peaks at the parameters plus one tensor: each stacked array is filled layer by layer.

    Args:
      config: from the directory's `config.json`.
      directory: a Hugging Face model directory.
      dtype: dtype of the arrays; as stored when None.

    Returns:
      The config, untied when the file holds a head that differs from the embedding, and the parameters.

    Raises:
      UserError: a tensor is missing, unexpected, or has another shape or dtype than the config says.
    """
    where = weight_files(directory)
    with ExitStack() as stack:
        opened = {path: stack.enter_context(_open(path)) for path in sorted(set(where.values()))}

        def fetch(name: str, shape: tuple[int, ...]) -> np.ndarray:
            if name not in where:
                raise UserError(f"{directory}: tensor {name} of shape {shape} is missing from the checkpoint")
            part = opened[where[name]].get_slice(name)
            if tuple(part.get_shape()) != shape:
                raise UserError(
                    f"{where[name]}: tensor {name} has shape {tuple(part.get_shape())}, config.json asks for {shape}"
                )
            if part.get_dtype() not in _DTYPES:
                raise UserError(
                    f"{where[name]}: tensor {name} has dtype {part.get_dtype()}; float tensors are supported"
                )
            return opened[where[name]].get_tensor(name)

        config = _settle_head(config, where, fetch)
        specs = param_specs(config)
        known = {spec.hf_name.format(layer=i) for spec in specs for i in range(config.num_layers)}
        # A tied checkpoint may store its head again; some exporters store the rotary table, which is derived.
        extra = sorted(
            n for n in where if n not in known and n != "lm_head.weight" and not n.endswith("rotary_emb.inv_freq")
        )
        if extra:
            raise UserError(
                f"{directory}: unexpected tensor {extra[0]} ({len(extra)} in all) for model_type {config.model_type}"
            )
        return config, build((spec, _load_one(config, spec, fetch, dtype)) for spec in specs)


def _settle_head(config: ModelConfig, where: dict[str, Path], fetch: Callable[..., np.ndarray]) -> ModelConfig:
    """A stored head wins over the tie flag when the two differ."""
    if not config.tie_word_embeddings or "lm_head.weight" not in where:
        return config
    shape = (config.vocab_size, config.hidden_size)
    if np.array_equal(fetch("lm_head.weight", shape), fetch("model.embed_tokens.weight", shape)):
        return config
    print(
        "note: config.json ties the output head to the embedding, but the checkpoint stores a different "
        "lm_head.weight; the stored head is used",
        file=sys.stderr,
    )
    return dataclasses.replace(config, tie_word_embeddings=False)


def _load_one(config: ModelConfig, spec: ParamSpec, fetch: Callable[..., np.ndarray], dtype: str | None) -> jax.Array:
    if not spec.stacked:
        value = fetch(spec.hf_name, spec.shape)
        return jnp.asarray(value, dtype or value.dtype)
    first = fetch(spec.hf_name.format(layer=0), spec.shape[1:])
    out = np.empty(spec.shape, np.dtype(dtype) if dtype else first.dtype)
    out[0] = first
    for i in range(1, config.num_layers):
        out[i] = fetch(spec.hf_name.format(layer=i), spec.shape[1:])
    return jnp.asarray(out)


def load_model(
    path: str | os.PathLike[str],
    dtype: str = "float32",
    *,
    max_position: int | None = None,
    revision: str | None = None,
) -> tuple[ModelConfig, Params]:
    """Loads a model from a local directory or a hub id.

    Args:
      path: directory with `config.json` and safetensors, or a hub id such as `Qwen/Qwen3-8B-Base`.
      dtype: `float32` or `bfloat16`, for the parameters and for computing.
      max_position: explicit context length in place of the config's.
      revision: hub revision.

    Returns:
      `(config, params)`. When the directory has a tokenizer, `config.num_tokens` is its number of ids, and the
      rows beyond are never sampled nor counted in a softmax.

    Raises:
      UserError: bad directory, config or weights, in one line.
    """
    from vsr_jax.model.resolve import resolve_model

    directory = Path(resolve_model(os.fspath(path), revision=revision).directory)
    file = directory / "config.json"
    config = parse_config(read_config(file), where=str(file), dtype=dtype, max_position=max_position)
    config, params = load_params(config, directory, dtype=dtype)
    if (directory / "tokenizer.json").exists() or (directory / "tokenizer_config.json").exists():
        from vsr_jax.data.tokenizer import load_tokenizer, token_count

        count = token_count(load_tokenizer(directory))
        if count > config.vocab_size:
            raise UserError(
                f"{directory}: the tokenizer has {count} ids but the embedding only {config.vocab_size} rows"
            )
        config = dataclasses.replace(config, num_tokens=count)
    return config, params


def save_model(config: ModelConfig, params: Params, directory: Path, *, dtype: str = "float32") -> None:
    """Writes `config.json` and safetensors (sharded above 5 GB) that the reference implementation loads.

    The directory must not hold weights yet; files are written under temporary names and renamed when complete.
    """
    kind = np.dtype(dtype)
    directory.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, np.ndarray]] = [{}]
    size = 0
    for spec in param_specs(config):
        value = np.asarray(lookup(params, spec)).astype(kind)
        names = [spec.hf_name.format(layer=i) for i in range(config.num_layers)] if spec.stacked else [spec.hf_name]
        for name, part in zip(names, value if spec.stacked else [value], strict=True):
            if size + part.nbytes > 5_000_000_000 and shards[-1]:
                shards.append({})
                size = 0
            shards[-1][name] = part
            size += part.nbytes
    total = len(shards)
    files = (
        ["model.safetensors"] if total == 1 else [f"model-{i + 1:05d}-of-{total:05d}.safetensors" for i in range(total)]
    )
    for file, tensors in zip(files, shards, strict=True):
        save_file(tensors, directory / f".{file}.tmp", metadata={"format": "pt"})
        os.replace(directory / f".{file}.tmp", directory / file)
    if total > 1:
        index = {
            "metadata": {"total_size": sum(t.nbytes for shard in shards for t in shard.values())},
            "weight_map": {name: file for file, shard in zip(files, shards, strict=True) for name in shard},
        }
        _write_json(directory / "model.safetensors.index.json", index)
    _write_json(directory / "config.json", to_hf_config(config, torch_dtype=dtype))


def _write_json(path: Path, value: Any) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(temporary, path)
