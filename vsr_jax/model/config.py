"""The decoder's configuration: every field of a `config.json` that changes the function is honoured or refused."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsr_jax.errors import UserError

MODEL_TYPES = ("qwen2", "qwen3", "llama")


@dataclass(frozen=True)
class Yarn:
    """YaRN rotary scaling (arXiv 2309.00071, section 3.4): slow dimensions are interpolated, fast ones kept."""

    factor: float
    original_max_position: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None


@dataclass(frozen=True)
class ModelConfig:
    """One dense decoder for Qwen2, Qwen2.5, Qwen3 and Llama. Hashable, so that it can be a static argument of jit.

    Attributes:
      vocab_size: rows of the embedding.
      num_tokens: ids below it are real tokens; rows from `num_tokens` up pad the matrix to a round size, have
        probability zero in sampling and are left out of every softmax.
      head_dim: size of one attention head; need not be `hidden_size / num_heads`.
      max_position: context length in tokens.
      qkv_bias: the query, key and value projections have a bias; `o_bias`: the output projection has one.
      qk_norm: queries and keys pass an RMS norm before the rotation (Qwen3).
      dtype: compute dtype, `float32` or `bfloat16`; logits and softmax are float32 always.
    """

    model_type: str
    vocab_size: int
    num_tokens: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position: int
    qkv_bias: bool
    o_bias: bool
    qk_norm: bool
    tie_word_embeddings: bool
    yarn: Yarn | None = None
    dtype: str = "float32"


def read_config(path: Path) -> dict[str, Any]:
    """Reads a `config.json`. Raises UserError when it is missing or is not a JSON object."""
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a model directory needs a config.json") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: expected a JSON object, found {type(raw).__name__}")
    return raw


def parse_config(
    raw: Mapping[str, Any], *, where: str = "config.json", dtype: str = "float32", max_position: int | None = None
) -> ModelConfig:
    """Turns the fields of a Hugging Face `config.json` into a ModelConfig.

    Defaults of absent fields are those of the reference implementation's classes. Fields that have none there, or a
    default that fits one published size only, must be given.

    Args:
      raw: the JSON object.
      where: named in errors.
      dtype: compute dtype.
      max_position: explicit context length in place of the file's.

    Raises:
      UserError: a field is missing, or asks for something that this decoder does not compute.
    """

    def need(name: str, kind: type[int] | type[float] = int) -> Any:
        return _positive(raw.get(name), kind, f"{where}: field {name}")

    def flag(name: str) -> bool:
        value = raw.get(name)
        if value is not None and not isinstance(value, bool):
            raise UserError(f"{where}: field {name} must be true or false, found {value!r}")
        return bool(value)

    model_type = raw.get("model_type")
    if model_type not in MODEL_TYPES:
        raise UserError(f"{where}: unknown model_type {model_type!r}; supported are {', '.join(MODEL_TYPES)}")
    if dtype not in ("float32", "bfloat16"):
        raise UserError(f"dtype {dtype!r} is not supported; use float32 or bfloat16")
    for name, harmless, what in _REFUSED:
        if raw.get(name) not in (None, *harmless):
            raise UserError(f"{where}: field {name} is {raw[name]!r}; {what}")
    if any(kind != "full_attention" for kind in raw.get("layer_types") or ()):
        raise UserError(f"{where}: field layer_types has layers other than full_attention, which are not supported")

    hidden, heads = need("hidden_size"), need("num_attention_heads")
    # Given as null it means one a query head; absent, only Llama's class says so.
    grouped = raw.get("num_key_value_heads") is not None or (model_type != "llama" and "num_key_value_heads" not in raw)
    kv_heads = need("num_key_value_heads") if grouped else heads
    if heads % kv_heads:
        raise UserError(f"{where}: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    head_dim = _head_dim(raw, where, hidden, heads)
    # Llama and Qwen3 name the switch; Qwen2 always has the bias on q, k, v and never on o.
    bias = flag("attention_bias")
    theta, yarn = _rope(raw, where)
    vocab, stated = need("vocab_size"), need("max_position_embeddings")
    return ModelConfig(
        model_type=model_type,
        vocab_size=vocab,
        num_tokens=vocab,
        hidden_size=hidden,
        intermediate_size=need("intermediate_size"),
        num_layers=need("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=need("rms_norm_eps", float),
        rope_theta=theta,
        max_position=stated if max_position is None else _positive(max_position, int, "context override max_position"),
        qkv_bias=model_type == "qwen2" or bias,
        o_bias=model_type != "qwen2" and bias,
        qk_norm=model_type == "qwen3",
        tie_word_embeddings=flag("tie_word_embeddings"),
        yarn=yarn,
        dtype=dtype,
    )


_REFUSED: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("hidden_act", ("silu",), "only silu is supported"),
    ("use_sliding_window", (False,), "sliding-window attention is not supported"),
    ("mlp_bias", (False,), "a bias in the feed-forward layers is not supported"),
    ("partial_rotary_factor", (1,), "partial rotary embedding is not supported"),
    ("quantization_config", (), "quantised weights are not supported, use the unquantised checkpoint"),
    ("is_encoder_decoder", (False,), "only decoders are supported"),
)
"""Fields that change the function, the values that do not, and what to say of the others."""


def _positive(value: Any, kind: type[int] | type[float], what: str) -> Any:
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not math.isfinite(value)
        or kind(value) != value
        or value <= 0
    ):
        raise UserError(f"{what} must be a positive {kind.__name__}, found {value!r}")
    return kind(value)


def _head_dim(raw: Mapping[str, Any], where: str, hidden: int, heads: int) -> int:
    """The explicit size; else 128 for Qwen3, whose class has that default, and an even share of the width elsewhere."""
    if raw.get("head_dim") is not None:
        size = _positive(raw["head_dim"], int, f"{where}: field head_dim")
    elif raw["model_type"] == "qwen3":
        size = 128
    elif hidden % heads:
        raise UserError(
            f"{where}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}; give head_dim"
        )
    else:
        size = hidden // heads
    if size % 2:
        raise UserError(f"{where}: head_dim {size} is odd; rotary embedding needs an even size")
    return size


def _rope(raw: Mapping[str, Any], where: str) -> tuple[float, Yarn | None]:
    """Reads both spellings: `rope_theta` with `rope_scaling`, and the newer `rope_parameters` that holds both."""
    named = {name: raw[name] for name in ("rope_scaling", "rope_parameters") if raw.get(name)}
    for name, value in named.items():
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: field {name} must be an object, found {value!r}")
    if len(named) == 2 and _rope_kind(named["rope_scaling"]) != _rope_kind(named["rope_parameters"]):
        raise UserError(f"{where}: rope_scaling and rope_parameters name different kinds; keep one of them")
    field, scaling = next(reversed(named.items()), ("rope_scaling", {}))
    thetas = {float(_positive(v, float, f"{where}: field rope_theta")) for v in _present(raw, scaling, "rope_theta")}
    if len(thetas) != 1:
        found = f"has two values, {thetas}" if thetas else "is missing (also absent from rope_parameters)"
        raise UserError(f"{where}: field rope_theta {found}")
    theta = thetas.pop()
    kind = _rope_kind(scaling)
    if scaling.get("partial_rotary_factor") not in (None, 1):
        raise UserError(f"{where}: {field} has a partial_rotary_factor; partial rotary embedding is not supported")
    if kind == "default":
        return theta, None
    if kind != "yarn":
        raise UserError(f"{where}: rope scaling of type {kind!r} is not supported; default and yarn are")
    if scaling.get("mscale") or scaling.get("mscale_all_dim") or scaling.get("truncate") is False:
        raise UserError(f"{where}: yarn fields mscale, mscale_all_dim and truncate are not supported")

    def number(name: str, default: float | None, kind: type[int] | type[float] = float) -> Any:
        value = scaling.get(name)
        return default if value is None else _positive(value, kind, f"{where}: field {name} of {field}")

    # The top-level field, which few checkpoints have, comes first in the reference implementation.
    original = raw.get("original_max_position_embeddings") or number("original_max_position_embeddings", None, int)
    factor = number("factor", None)
    if factor is None:
        raise UserError(f"{where}: yarn scaling needs the field factor in {field}")
    return theta, Yarn(
        factor=factor,
        original_max_position=_positive(
            original or raw.get("max_position_embeddings"), int, f"{where}: field original_max_position_embeddings"
        ),
        beta_fast=number("beta_fast", 32.0),
        beta_slow=number("beta_slow", 1.0),
        attention_factor=number("attention_factor", None),
    )


def _rope_kind(scaling: Mapping[str, Any]) -> Any:
    return scaling.get("rope_type", scaling.get("type", "default"))


def _present(raw: Mapping[str, Any], scaling: Mapping[str, Any], name: str) -> list[Any]:
    return [part[name] for part in (raw, scaling) if part.get(name) is not None]


def to_hf_config(config: ModelConfig, *, torch_dtype: str = "float32") -> dict[str, Any]:
    """The `config.json` that makes Hugging Face's reference compute the same function."""
    names = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}
    raw: dict[str, Any] = {
        "architectures": [names[config.model_type]],
        "model_type": config.model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "max_position_embeddings": config.max_position,
        "tie_word_embeddings": config.tie_word_embeddings,
        "torch_dtype": torch_dtype,
    }
    if config.model_type != "qwen2":
        raw["attention_bias"] = config.qkv_bias
    if config.yarn is not None:
        raw["rope_scaling"] = {
            "rope_type": "yarn",
            "factor": config.yarn.factor,
            "original_max_position_embeddings": config.yarn.original_max_position,
            "beta_fast": config.yarn.beta_fast,
            "beta_slow": config.yarn.beta_slow,
            "attention_factor": config.yarn.attention_factor,
        }
    return raw
