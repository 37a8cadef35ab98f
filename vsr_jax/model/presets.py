"""Published sizes of Qwen, as the fields of their `config.json`, so that planning needs no download.

Facts of the `config.json` files at https://huggingface.co/Qwen, under the names there. Read whole, in public copies:
Qwen3 4B, 8B, 8B-Base, 14B and 32B, Qwen2.5 0.5B and 7B. The others from the model table of LitGPT
(`litgpt/config.py`, which cites each file); it omits tying, which follows the parameter counts on the model cards
(Qwen2.5-Math-1.5B: as Qwen2.5-1.5B, from which it was trained), and the 32,768 positions of the smaller and larger
Qwen3 bases, taken from 8B-Base.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vsr_jax.errors import UserError

_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)


def _qwen2(*sizes: int, context: int, theta: float, eps: float = 1e-6, tied: bool = False) -> Mapping[str, Any]:
    return MappingProxyType(
        {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            **dict(zip(_SIZES, sizes, strict=True)),
            "hidden_act": "silu",
            "max_position_embeddings": context,
            "rms_norm_eps": eps,
            "rope_theta": theta,
            "use_sliding_window": False,
            "tie_word_embeddings": tied,
            "bos_token_id": 151643,
            "eos_token_id": 151643,
            "torch_dtype": "bfloat16",
        }
    )


def _qwen3(*sizes: int, base: bool, tied: bool = False) -> Mapping[str, Any]:
    return MappingProxyType(
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            **dict(zip(_SIZES, sizes, strict=True)),
            "head_dim": 128,
            "attention_bias": False,
            "hidden_act": "silu",
            "max_position_embeddings": 32768 if base else 40960,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000,
            "rope_scaling": None,
            "use_sliding_window": False,
            "tie_word_embeddings": tied,
            "bos_token_id": 151643,
            "eos_token_id": 151643 if base else 151645,
            "torch_dtype": "bfloat16",
        }
    )


# fmt: off
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({
    #                                hidden  inner layers heads kv   vocab
    "Qwen/Qwen2.5-0.5B":      _qwen2( 896,  4864, 24, 14, 2, 151936, context=32768, theta=1e6, tied=True),
    "Qwen/Qwen2.5-1.5B":      _qwen2(1536,  8960, 28, 12, 2, 151936, context=131072, theta=1e6, tied=True),
    "Qwen/Qwen2.5-7B":        _qwen2(3584, 18944, 28, 28, 4, 152064, context=131072, theta=1e6),
    "Qwen/Qwen2.5-72B":       _qwen2(8192, 29568, 80, 64, 8, 152064, context=131072, theta=1e6, eps=1e-5),
    "Qwen/Qwen2.5-Math-1.5B": _qwen2(1536,  8960, 28, 12, 2, 151936, context=4096, theta=1e4, tied=True),
    "Qwen/Qwen2.5-Math-7B":   _qwen2(3584, 18944, 28, 28, 4, 152064, context=4096, theta=1e4),
    "Qwen/Qwen2.5-Math-72B":  _qwen2(8192, 29568, 80, 64, 8, 152064, context=4096, theta=1e4, eps=1e-5),
    "Qwen/Qwen3-0.6B-Base":   _qwen3(1024,  3072, 28, 16, 8, 151936, base=True, tied=True),
    "Qwen/Qwen3-1.7B-Base":   _qwen3(2048,  6144, 28, 16, 8, 151936, base=True, tied=True),
    "Qwen/Qwen3-4B-Base":     _qwen3(2560,  9728, 36, 32, 8, 151936, base=True, tied=True),
    "Qwen/Qwen3-8B-Base":     _qwen3(4096, 12288, 36, 32, 8, 151936, base=True),
    "Qwen/Qwen3-14B-Base":    _qwen3(5120, 17408, 40, 40, 8, 151936, base=True),
    "Qwen/Qwen3-0.6B":        _qwen3(1024,  3072, 28, 16, 8, 151936, base=False, tied=True),
    "Qwen/Qwen3-1.7B":        _qwen3(2048,  6144, 28, 16, 8, 151936, base=False, tied=True),
    "Qwen/Qwen3-4B":          _qwen3(2560,  9728, 36, 32, 8, 151936, base=False, tied=True),
    "Qwen/Qwen3-8B":          _qwen3(4096, 12288, 36, 32, 8, 151936, base=False),
    "Qwen/Qwen3-14B":         _qwen3(5120, 17408, 40, 40, 8, 151936, base=False),
    "Qwen/Qwen3-32B":         _qwen3(5120, 25600, 64, 64, 8, 151936, base=False),
})
# fmt: on


def preset(name: str) -> dict[str, Any]:
    """A copy of one preset's `config.json` fields.

    Args:
      name: hub id, or its last part; case does not matter: `Qwen/Qwen3-8B-Base`, `qwen3-8b-base`.

    Raises:
      UserError: unknown name; the message lists the known ones.
    """
    wanted = name.lower().removeprefix("qwen/")
    for known, fields in PRESETS.items():
        if known.lower().removeprefix("qwen/") == wanted:
            return dict(fields)
    raise UserError(f"unknown model preset {name!r}; known are {', '.join(PRESETS)}")


def closest_preset(raw: Mapping[str, Any]) -> str | None:
    """The published model of the same shape that shares most fields with a `config.json`; None where none fits."""

    def differing(name: str) -> int:
        return sum(raw.get(field) != value for field, value in PRESETS[name].items())

    shape = ("model_type", *(size for size in _SIZES if size != "vocab_size"))
    alike = [name for name, fields in PRESETS.items() if all(raw.get(size) == fields[size] for size in shape)]
    return min(alike, key=differing, default=None)
