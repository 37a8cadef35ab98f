"""`vsr inspect`: what a model is, what it needs, and where it is not what its hub page says.

Headers are read, weights are not, save where a tied checkpoint stores its head again and both have to be compared.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsr_jax.data.tokenizer import load_tokenizer, stop_ids, token_count
from vsr_jax.errors import UserError
from vsr_jax.model.checkpoint_io import check_tensors, settle_head
from vsr_jax.model.config import ModelConfig, parse_config, read_config, to_hf_config
from vsr_jax.model.params import param_count
from vsr_jax.model.presets import PRESETS, closest_preset, preset
from vsr_jax.model.resolve import resolve_model
from vsr_jax.model.weight_files import DTYPES, StoredTensor, stored_tensors

_BYTES = {"float32": 4, "bfloat16": 2}
_TOKEN_FIELDS = ("bos_token_id", "eos_token_id")
_END_SOURCES = ("config.json", "generation_config.json")
Lines = list[tuple[str, str]]


@dataclass(frozen=True)
class _Model:
    """What is known: a directory, with its hub id where it has one, or the fields of a preset alone."""

    source: str
    raw: Mapping[str, Any]
    directory: Path | None
    hub_id: str | None


def inspect_model(
    model: str | os.PathLike[str], *, revision: str | None = None, max_position: int | None = None
) -> str:
    """Describes a model for the screen.

    Args:
      model: directory, hub id (its config and tokenizer are fetched, its weights are not) or name of a preset. A hub
        id that cannot be reached is described by its preset, where there is one.
      revision: hub revision.
      max_position: context length in place of the config's.

    Returns:
      One fact a line: architecture, parameters, context, memory by dtype, tokenizer, stop set, deviations.

    Raises:
      UserError: no such model, or a config or checkpoint that does not load.
    """
    found = _find(os.fspath(model), revision)
    where = str(found.directory / "config.json") if found.directory else found.source
    config = parse_config(found.raw, where=where, max_position=max_position)
    lines: Lines = [("model", found.source)]
    deviations = _overrides(found.raw, config)
    stored: dict[str, StoredTensor] = {}
    if found.directory and any(found.directory.glob("*.safetensors")):
        stored = stored_tensors(found.directory)
        check_tensors(config, stored, found.directory)
        config, note = settle_head(config, stored)
        deviations += [note] if note else []
        deviations += _stored_dtype(found.raw, stored.values())
    lines += [*_architecture(config, found.raw), *_memory(config, stored)]
    if found.directory:
        told, noted = _tokenizer(found.directory, config)
        lines += told
        deviations += noted
        deviations += _from_hub(found, config)
    else:
        lines.append(("tokenizer", "unknown without the model's files"))
    lines += [
        ("deviation", text) for text in deviations or ["none" if found.directory else "unknown without the files"]
    ]
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:<{width}}{text}" for name, text in lines)


def _find(name: str, revision: str | None) -> _Model:
    try:
        files = resolve_model(name, revision, weights=False)
    except UserError as error:
        if Path(name).expanduser().exists() or revision is not None:
            raise
        try:
            fields = preset(name)
        except UserError:
            raise error from None
        hub_id = closest_preset(fields)
        return _Model(f"{hub_id}, from the sizes that ship with vsr-jax; its files were not read", fields, None, None)
    raw = read_config(files.directory / "config.json")
    local = files.revision is None
    source = f"{files.source} (local directory)" if local else f"{files.source} at {files.revision}"
    return _Model(source, raw, files.directory, None if local else files.source)


def _architecture(config: ModelConfig, raw: Mapping[str, Any]) -> Lines:
    derived = "" if raw.get("head_dim") is not None else " (not in config.json)"
    parts = [
        *(["bias on q, k, v"] if config.qkv_bias else []),
        *(["bias on o"] if config.o_bias else []),
        *(["norm on queries and keys"] if config.qk_norm else []),
    ]
    total = param_count(config)
    embedding = config.vocab_size * config.hidden_size
    heads = 1 if config.tie_word_embeddings else 2
    scaling = "no scaling"
    if config.yarn is not None:
        scaling = f"YaRN x {config.yarn.factor:g} over {config.yarn.original_max_position:,} tokens"
    return [
        (
            "architecture",
            f"{config.model_type}: {config.num_layers} layers, hidden {config.hidden_size:,}, "
            f"feed-forward {config.intermediate_size:,}, RMS norm epsilon {config.rms_norm_eps:g}",
        ),
        (
            "attention",
            f"{config.num_heads} heads, {config.num_kv_heads} key-value heads, head size {config.head_dim}{derived}; "
            f"{', '.join(parts) or 'no bias'}",
        ),
        ("rotary", f"base {config.rope_theta:,.0f}, {scaling}"),
        ("context", f"{config.max_position:,} tokens"),
        (
            "parameters",
            f"{total:,}; {total - heads * embedding:,} without embedding"
            f"{'' if config.tie_word_embeddings else ' and output head'}",
        ),
        (
            "output head",
            "tied to the embedding" if config.tie_word_embeddings else f"its own matrix, {embedding:,} parameters",
        ),
    ]


def _memory(config: ModelConfig, stored: Mapping[str, StoredTensor]) -> Lines:
    count = param_count(config)
    per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    lines: Lines = []
    if stored:
        files = {tensor.file for tensor in stored.values()}
        kinds = "/".join(sorted({tensor.dtype for tensor in stored.values()}))
        size = sum(file.stat().st_size for file in files)
        lines.append(("stored", f"{len(stored)} tensors, {kinds}, {_size(size)} in {len(files)} file(s)"))
    for dtype, size in _BYTES.items():
        cache = per_token * size
        lines.append(
            (
                f"memory {dtype}",
                f"weights {_size(count * size)}; cache {_size(cache)} a token, "
                f"{_size(cache * config.max_position)} for one row of the whole context",
            )
        )
    lines.append(
        (
            "memory training",
            f"{_size(16 * count)}: float32 weights, gradient and two moments of AdamW; activations apart",
        )
    )
    return lines


def _size(count: int) -> str:
    """Bytes in decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:,.2f} {unit}"
    return f"{count / 1e3:,.1f} kB"


def _tokenizer(directory: Path, config: ModelConfig) -> tuple[Lines, list[str]]:
    """Lines on tokenizer and stop set, and where they differ from what the files alone would suggest."""
    if not any((directory / name).exists() for name in ("tokenizer.json", "vocab.json", "tokenizer.model")):
        return [("tokenizer", "none in the directory")], []
    tokenizer = load_tokenizer(directory)
    count = token_count(tokenizer)
    if count > config.vocab_size:
        raise UserError(f"{directory}: the tokenizer has {count} ids but the embedding only {config.vocab_size} rows")

    def token(index: int) -> str:
        return f"{index} {tokenizer.convert_ids_to_tokens(index)}"

    special = [
        f"{name} {token(index)}" if isinstance(index, int) else f"{name} none"
        for name, index in (
            ("beginning", tokenizer.bos_token_id),
            ("end", tokenizer.eos_token_id),
            ("padding", tokenizer.pad_token_id),
        )
    ]
    added = len(tokenizer.encode("a")) - len(tokenizer.encode("a", add_special_tokens=False))
    chat = bool(getattr(tokenizer, "chat_template", None))
    stops = stop_ids(directory, tokenizer)
    named = {name: _ends(directory / name) for name in _END_SOURCES}
    lines = [
        ("tokenizer", f"{count:,} ids for {config.vocab_size:,} rows of the vocabulary"),
        ("special ids", ", ".join(special)),
        ("plain text", f"gets {added} special token(s) from the tokenizer" if added else "is encoded as it is"),
        ("chat template", "yes; framings chat and qwen_math_system work" if chat else "none; use raw, bare or a file"),
        ("stop set", ", ".join(map(token, stops)) or "empty: responses run to the length limit"),
    ]
    deviations = []
    if count < config.vocab_size:
        deviations.append(
            f"rows {count:,} to {config.vocab_size - 1:,} of the vocabulary are no tokens: they are never sampled and "
            "count in no softmax, on either side"
        )
    for name, ids in named.items():
        more = [token(index) for index in stops if index not in ids]
        if ids and more:
            deviations.append(f"responses also end at {', '.join(more)}, which {name} does not name")
    return lines, deviations


def _ends(file: Path) -> set[int]:
    """Ids under `eos_token_id`; `stop_ids` has checked them."""
    value = json.loads(file.read_text()).get("eos_token_id") if file.exists() else None
    return set(value) if isinstance(value, list) else set() if value is None else {value}


def _overrides(raw: Mapping[str, Any], config: ModelConfig) -> list[str]:
    """Where the decoder leaves config.json, and fields in it that look like more than they are."""
    found = []
    stated = raw["max_position_embeddings"]
    if config.max_position != stated:
        found.append(f"context of {config.max_position:,} tokens by override; config.json says {stated:,}")
    if raw.get("attention_dropout"):
        found.append(f"attention_dropout {raw['attention_dropout']} is not applied in training")
    if raw.get("auto_map"):
        found.append("auto_map names code in the repository, which is never run")
    return found


def _stored_dtype(raw: Mapping[str, Any], stored: Iterable[StoredTensor]) -> list[str]:
    stated = raw.get("torch_dtype") or raw.get("dtype")
    kinds = sorted({str(DTYPES[tensor.dtype]) for tensor in stored if tensor.dtype in DTYPES})
    if stated is None or kinds == [stated]:
        return []
    return [f"weights are stored as {' and '.join(kinds)}; config.json says {stated}"]


def _from_hub(found: _Model, config: ModelConfig) -> list[str]:
    """Fields that differ from the published model of the same name or shape."""
    known = found.hub_id if found.hub_id in PRESETS else closest_preset(found.raw)
    if known is None:
        return []
    published = preset(known)
    ours, theirs = (
        {**to_hf_config(c), **{name: raw.get(name) for name in _TOKEN_FIELDS}}
        for c, raw in ((config, found.raw), (parse_config(published), published))
    )
    return [
        f"{name} is {json.dumps(ours.get(name))}; {known} has {json.dumps(theirs.get(name))}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
