"""One table of parameters: it serves initialisation, sharding, loading, saving and restoring."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from vsr_jax.model.config import ModelConfig

Params = dict[str, Any]
"""Nested dict of arrays: `embed`, `final_norm`, optional `lm_head`, and `layers`, stacked on a leading axis."""


@dataclass(frozen=True)
class ParamSpec:
    """What is known of one parameter before it exists.

    Attributes:
      path: keys into the nested dict.
      shape: as stored here. Weight matrices keep the Hugging Face orientation [out, in], so that loading and
        saving move bytes and never transpose.
      axes: one logical axis name a dimension; the sharding rules map them to mesh axes.
      init: how a fresh model fills it.
      hf_name: name in a Hugging Face checkpoint, with `{layer}` for stacked parameters.
    """

    path: tuple[str, ...]
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    init: Literal["normal", "ones", "zeros"]
    hf_name: str

    @property
    def stacked(self) -> bool:
        """Whether the leading axis counts layers."""
        return self.axes[0] == "layers"


def param_specs(config: ModelConfig) -> tuple[ParamSpec, ...]:
    """Every parameter of the decoder, in a fixed order."""
    layers, d, f = config.num_layers, config.hidden_size, config.intermediate_size
    q, kv, k = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim, config.head_dim

    def layer(name: str, shape: tuple[int, ...], axes: tuple[str | None, ...], init: Any, hf: str) -> ParamSpec:
        return ParamSpec(("layers", name), (layers, *shape), ("layers", *axes), init, f"model.layers.{{layer}}.{hf}")

    specs = [
        ParamSpec(("embed",), (config.vocab_size, d), ("vocab", "embed"), "normal", "model.embed_tokens.weight"),
        layer("attn_norm", (d,), (None,), "ones", "input_layernorm.weight"),
        layer("q", (q, d), ("heads", "embed"), "normal", "self_attn.q_proj.weight"),
        layer("k", (kv, d), ("kv_heads", "embed"), "normal", "self_attn.k_proj.weight"),
        layer("v", (kv, d), ("kv_heads", "embed"), "normal", "self_attn.v_proj.weight"),
        layer("o", (d, q), ("embed", "heads"), "normal", "self_attn.o_proj.weight"),
        layer("mlp_norm", (d,), (None,), "ones", "post_attention_layernorm.weight"),
        layer("gate", (f, d), ("mlp", "embed"), "normal", "mlp.gate_proj.weight"),
        layer("up", (f, d), ("mlp", "embed"), "normal", "mlp.up_proj.weight"),
        layer("down", (d, f), ("embed", "mlp"), "normal", "mlp.down_proj.weight"),
    ]
    if config.qkv_bias:
        specs += [
            layer("q_bias", (q,), ("heads",), "zeros", "self_attn.q_proj.bias"),
            layer("k_bias", (kv,), ("kv_heads",), "zeros", "self_attn.k_proj.bias"),
            layer("v_bias", (kv,), ("kv_heads",), "zeros", "self_attn.v_proj.bias"),
        ]
    if config.o_bias:
        specs.append(layer("o_bias", (d,), (None,), "zeros", "self_attn.o_proj.bias"))
    if config.qk_norm:
        specs += [
            layer("q_norm", (k,), (None,), "ones", "self_attn.q_norm.weight"),
            layer("k_norm", (k,), (None,), "ones", "self_attn.k_norm.weight"),
        ]
    specs.append(ParamSpec(("final_norm",), (d,), (None,), "ones", "model.norm.weight"))
    if not config.tie_word_embeddings:
        specs.append(ParamSpec(("lm_head",), (config.vocab_size, d), ("vocab", "embed"), "normal", "lm_head.weight"))
    return tuple(specs)


def build(pairs: Iterator[tuple[ParamSpec, Any]]) -> Params:
    """Nests values under the paths of their specs."""
    tree: Params = {}
    for spec, value in pairs:
        node = tree
        for key in spec.path[:-1]:
            node = node.setdefault(key, {})
        node[spec.path[-1]] = value
    return tree


def lookup(params: Params, spec: ParamSpec) -> Any:
    """The value at a spec's path."""
    node: Any = params
    for key in spec.path:
        node = node[key]
    return node


def init_params(config: ModelConfig, key: jax.Array, *, dtype: Any = jnp.float32, std: float = 0.02) -> Params:
    """A fresh model: normal weights with deviation `std`, unit norms, zero biases.

    The outputs of attention and feed-forward start smaller by sqrt(2 layers), so that the residual stream keeps
    its scale with depth (GPT-2, Radford et al. 2019, section 2.3).
    """

    def fill(index: int, spec: ParamSpec) -> jax.Array:
        if spec.init != "normal":
            return jnp.full(spec.shape, float(spec.init == "ones"), dtype)
        scale = std / (2 * config.num_layers) ** 0.5 if spec.path[-1] in ("o", "down") else std
        return scale * jax.random.normal(jax.random.fold_in(key, index), spec.shape, dtype)

    return build((spec, fill(i, spec)) for i, spec in enumerate(param_specs(config)))


def param_count(config: ModelConfig) -> int:
    """Number of scalars, a tied head counted once."""
    total = 0
    for spec in param_specs(config):
        size = 1
        for n in spec.shape:
            size *= n
        total += size
    return total
