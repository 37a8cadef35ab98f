"""The decoder, as pure functions over a nested dict of arrays.

Three passes share one block: `hidden_states` (whole sequences), `grouped_hidden_states` (one prompt, G responses,
the prompt computed once) and `prefill` with `decode_step` (one token a slot, with a cache updated in place).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from vsr_jax.errors import UserError
from vsr_jax.model.attention import grouped_attention, self_attention
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.model.placement import by_rows
from vsr_jax.model.rope import apply_rope, rope_table

Layer = dict[str, jax.Array]


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """Root-mean-square norm over the last axis (arXiv 1910.07467), computed in float32."""
    wide = x.astype(jnp.float32)
    return weight * (wide * lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)).astype(x.dtype)


FEW_ROWS = range(2, 129)
"""Rows of a product with a weight that a CPU multiplies faster from the other side."""


def _product(x: jax.Array, weight: jax.Array, dtype: Any = None) -> jax.Array:
    """x [..., i] times weight [o, i]: [..., o]."""

    def plain(x: jax.Array, weight: jax.Array) -> jax.Array:
        return jnp.einsum("...i,oi->...o", x, weight, preferred_element_type=dtype)

    def by_rows(x: jax.Array, weight: jax.Array) -> jax.Array:
        # A CPU's compiler turns an operand round, element by element, where a gradient sums over several axes.
        return plain(x.reshape(-1, x.shape[-1]), weight).reshape(*x.shape[:-1], -1)

    def weight_first(x: jax.Array, weight: jax.Array) -> jax.Array:
        rows = x.reshape(-1, x.shape[-1])
        out = jnp.einsum("oi,ri->or", weight, rows, preferred_element_type=dtype)
        # The barrier keeps the compiler from turning the product round again.
        return lax.optimization_barrier(out).T.reshape(*x.shape[:-1], -1)

    return lax.platform_dependent(x, weight, cpu=weight_first if _few_rows(x) else by_rows, default=plain)


def _few_rows(x: jax.Array) -> bool:
    return x.size // x.shape[-1] in FEW_ROWS and x.dtype == jnp.float32


def _swiglu(x: jax.Array, gate: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    """down (silu(gate x) * up x) (arXiv 2002.05202) of [..., i]."""

    def plain(x: jax.Array, gate: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return _product(jax.nn.silu(_product(x, gate)) * _product(x, up), down)

    def by_columns(x: jax.Array, gate: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        # As in `_product`; what lies between the products is never turned round.
        rows = x.reshape(-1, x.shape[-1])
        first = lambda w: lax.optimization_barrier(jnp.einsum("oi,ri->or", w, rows))  # noqa: E731
        out = jnp.einsum("oi,ir->or", down, jax.nn.silu(first(gate)) * first(up))
        return lax.optimization_barrier(out).T.reshape(x.shape)

    if _few_rows(x):
        return lax.platform_dependent(x, gate, up, down, cpu=by_columns, default=plain)
    return plain(x, gate, up, down)


def _linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    if bias is None:
        return _product(x, weight)
    # Added before the product is rounded: biases of Qwen2's keys are in the hundreds.
    return (_product(x, weight, jnp.float32) + bias.astype(jnp.float32)).astype(x.dtype)


def _qkv(config: ModelConfig, layer: Layer, x: jax.Array, rope: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
    """Rotated queries [..., heads, head_dim], rotated keys and values [..., kv_heads, head_dim]."""
    split = lambda y: y.reshape(*y.shape[:-1], -1, config.head_dim)  # noqa: E731
    q, k, v = (split(_linear(x, layer[name], layer.get(f"{name}_bias"))) for name in "qkv")
    if config.qk_norm:
        q, k = rms_norm(q, layer["q_norm"], config.rms_norm_eps), rms_norm(k, layer["k_norm"], config.rms_norm_eps)
    return apply_rope(q, *rope), apply_rope(k, *rope), v


def _block(
    config: ModelConfig,
    layer: Layer,
    x: jax.Array,
    rope: tuple[jax.Array, jax.Array],
    attend: Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]],
) -> tuple[jax.Array, Any]:
    """One pre-norm layer. `attend(q, k, v)` returns the mixed values and whatever the caller keeps (a cache, say)."""
    with jax.named_scope("attention"):
        q, k, v = _qkv(config, layer, rms_norm(x, layer["attn_norm"], config.rms_norm_eps), rope)
        mixed, kept = attend(q, k, v)
        x = x + _linear(mixed.reshape(*mixed.shape[:-2], -1), layer["o"], layer.get("o_bias"))
    with jax.named_scope("mlp"):
        y = rms_norm(x, layer["mlp_norm"], config.rms_norm_eps)
        x = x + _swiglu(y, layer["gate"], layer["up"], layer["down"])
    return x, kept


def _cast(config: ModelConfig, layer: Layer) -> Layer:
    """Weights in the compute dtype; inside the (rematerialised) layer, so that no cast copy outlives it."""
    return {name: w.astype(config.dtype) for name, w in layer.items()}


def embed(config: ModelConfig, params: Params, tokens: jax.Array) -> jax.Array:
    """Token embeddings [..., hidden_size] in the compute dtype."""
    return params["embed"][tokens].astype(config.dtype)


def _final_norm(config: ModelConfig, params: Params, x: jax.Array) -> jax.Array:
    return rms_norm(x, params["final_norm"].astype(config.dtype), config.rms_norm_eps)


def head(config: ModelConfig, params: Params) -> jax.Array:
    """The output matrix [vocab_size, hidden_size]; the embedding itself when tied, so that gradients add up."""
    return params["embed"] if config.tie_word_embeddings else params["lm_head"]


def logits(config: ModelConfig, params: Params, hidden: jax.Array) -> jax.Array:
    """float32[..., vocab_size]; rows that pad the vocabulary are -inf, on the sampling and the scoring side alike."""
    with jax.named_scope("lm_head"):
        weight = head(config, params).astype(config.dtype)
        out = _product(hidden, weight, jnp.float32)
        if config.num_tokens < config.vocab_size:
            real = jnp.arange(config.vocab_size) < config.num_tokens
            if out.ndim == 2 and _few_rows(hidden):
                return jnp.where(real[:, None], out.T, -jnp.inf).T  # in the order in which the product left them
            out = jnp.where(real, out, -jnp.inf)
        return out


def hidden_states(
    config: ModelConfig,
    params: Params,
    tokens: jax.Array,
    *,
    positions: jax.Array | None = None,
    segments: jax.Array | None = None,
    remat: bool = False,
    every_layer: bool = False,
) -> jax.Array:
    """Runs whole sequences.

    Args:
      tokens: int32[B, T]. Right padding needs no mask: attention is causal.
      positions: int32[B, T], default 0..T-1 in each row, which must then fit the context.
      segments: int32[B, T]; tokens attend within their segment only. Needed for packed rows and for left padding
        (segment 0), with positions that restart in each segment.
      remat: recompute each layer in the backward pass instead of keeping its activations.
      every_layer: return float[L + 2, B, T, D]: the embedding, every layer's output, the normed output.

    Returns:
      The normed hidden states, float[B, T, hidden_size] in the compute dtype.

    Raises:
      UserError: rows without given positions are longer than the context.
    """
    if positions is None:
        if tokens.shape[1] > config.max_position:
            raise UserError(
                f"rows of {tokens.shape[1]} tokens exceed the context of {config.max_position} "
                "(max_position_embeddings); shorten them or override the context by name"
            )
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    rope = rope_table(config, positions)

    def body(x: jax.Array, layer: Layer) -> tuple[jax.Array, jax.Array | None]:
        attend = lambda q, k, v: (self_attention(q, k, v, segments), None)  # noqa: E731
        x, _ = _block(config, _cast(config, layer), by_rows(x), rope, attend)
        x = by_rows(x)
        return x, x if every_layer else None

    x = first = by_rows(embed(config, params, tokens))
    with jax.named_scope("layer"):
        x, outputs = lax.scan(jax.checkpoint(body) if remat else body, x, params["layers"])
    x = _final_norm(config, params, x)
    return x if outputs is None else jnp.concatenate([first[None], outputs, x[None]])


def grouped_hidden_states(
    config: ModelConfig,
    params: Params,
    prompt_tokens: jax.Array,
    prompt_length: jax.Array,
    tokens: jax.Array,
    *,
    remat: bool = False,
) -> jax.Array:
    """Runs G responses to each of P prompts, computing each prompt once.

    Args:
      prompt_tokens: int32[P, S], right-padded; prompt_length: int32[P].
      tokens: int32[P, G, R], right-padded responses.
      remat: as in `hidden_states`.

    Returns:
      float[P, G, R, hidden_size]: at [p, g, r] the state that predicts `tokens[p, g, r]`, that is the state of the
      prompt's last token at r = 0 and of response token r - 1 after it.
    """
    group, width, prompt_width = tokens.shape[1], tokens.shape[2], prompt_tokens.shape[1]
    # The last response token predicts nothing that is scored, so it is never run.
    tokens = tokens[:, :, : width - 1]
    prompt_rope = rope_table(config, jnp.broadcast_to(jnp.arange(prompt_width), prompt_tokens.shape))
    rope = rope_table(config, prompt_length[:, None, None] + jnp.arange(width - 1))
    prompt_mask = (jnp.arange(prompt_width) < prompt_length[:, None])[:, None, None]
    causal = jnp.tril(jnp.ones((width - 1, width - 1), bool))[None, None]

    def body(carry: tuple[jax.Array, jax.Array], layer: Layer) -> tuple[tuple[jax.Array, jax.Array], None]:
        prompt_x, x = jax.tree.map(by_rows, carry)
        layer = _cast(config, layer)
        attend_prompt = lambda q, k, v: (self_attention(q, k, v, None), (_heads_first(k), _heads_first(v)))  # noqa: E731
        prompt_x, (prompt_k, prompt_v) = _block(config, layer, prompt_x, prompt_rope, attend_prompt)

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, None]:
            own = _heads_first(k), _heads_first(v)
            return grouped_attention(q, prompt_k, prompt_v, prompt_mask, *own, causal), None

        x, _ = _block(config, layer, x, rope, attend)
        return (by_rows(prompt_x), by_rows(x)), None

    carry = by_rows(embed(config, params, prompt_tokens)), by_rows(embed(config, params, tokens))
    with jax.named_scope("layer"):
        (prompt_x, x), _ = lax.scan(jax.checkpoint(body) if remat else body, carry, params["layers"])
    last = jnp.take_along_axis(prompt_x, (prompt_length - 1)[:, None, None], axis=1)
    first = jnp.broadcast_to(last[:, None], (*x.shape[:2], 1, x.shape[-1]))
    assert x.shape[1] == group
    return _final_norm(config, params, jnp.concatenate([first, x], axis=2))


def unstack_layers(config: ModelConfig, params: Params) -> Params:
    """Parameters with `layers` as a tuple of one dict a layer, cast to the compute dtype.

    The decode pass runs thousands of times over the same weights: as separate arrays they are read in place, where
    slices of a stacked array would be copied out at every step. Parameters that already are a tuple pass through.
    """
    if isinstance(params["layers"], tuple):
        return params
    return _unstack(config, params)


@partial(jax.jit, static_argnames=("config",))
def _unstack(config: ModelConfig, params: Params) -> Params:
    cast = jax.tree.map(lambda w: w.astype(config.dtype), params)
    layers = tuple(jax.tree.map(lambda w, i=i: w[i], cast["layers"]) for i in range(config.num_layers))
    return {**cast, "layers": layers}


def _heads_first(x: jax.Array) -> jax.Array:
    """[..., tokens, heads, head_dim] to [..., heads, tokens, head_dim]."""
    return x.swapaxes(-3, -2)


class Cache(NamedTuple):
    """Keys and values of P lanes with G slots each; every field is a tuple over layers.

    A lane holds the prompts that its slots answer, each once. A slot's own tokens lie in a ring: all slots write
    the same column at the same step, whatever the age of their responses, so that a step is one update in place.

    Attributes:
      prompt_k, prompt_v: [P, kv_heads, S, head_dim], written by `prefill`.
      k, v: [P * G, kv_heads, R, head_dim], lane by lane. In one axis, because a CPU copies all of an array with an axis
        of one lane where it could update it in place.
    """

    prompt_k: tuple[jax.Array, ...]
    prompt_v: tuple[jax.Array, ...]
    k: tuple[jax.Array, ...]
    v: tuple[jax.Array, ...]


def empty_cache(config: ModelConfig, lanes: int, prompt_slots: int, group: int, ring: int) -> Cache:
    """A cache of zeros: room for `prompt_slots` prompt tokens a lane and `ring` response tokens a slot."""
    heads, size = config.num_kv_heads, config.head_dim
    prompt, own = (lanes, heads, prompt_slots, size), (lanes * group, heads, ring, size)
    make = lambda shape: tuple(jnp.zeros(shape, config.dtype) for _ in range(config.num_layers))  # noqa: E731
    return Cache(make(prompt), make(prompt), make(own), make(own))


def prefill(
    config: ModelConfig, params: Params, tokens: jax.Array, length: jax.Array, tail: int = 1
) -> tuple[jax.Array, tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """Runs int32[A, S] right-padded prompts of int32[A] tokens; `params` as `unstack_layers` returns them.

    Returns:
      The normed states of each prompt's last `tail` tokens, [A, tail, hidden_size] (what would come before a prompt's
      first token repeats it), and keys and values by layer, each [A, kv_heads, S, head_dim].
    """
    rope = rope_table(config, jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape))
    attend = lambda q, k, v: (self_attention(q, k, v, None), (_heads_first(k), _heads_first(v)))  # noqa: E731
    x, kept = embed(config, params, tokens), []
    for layer in params["layers"]:
        with jax.named_scope("layer"):
            x, pair = _block(config, layer, x, rope, attend)
            kept.append(pair)
    at = jnp.maximum(length[:, None] - tail + jnp.arange(tail), 0)
    last = jnp.take_along_axis(x, at[..., None], axis=1)
    keys, values = zip(*kept, strict=True)
    return _final_norm(config, params, last), keys, values


def decode_step(
    config: ModelConfig,
    params: Params,
    tokens: jax.Array,
    positions: jax.Array,
    column: jax.Array,
    prompt_mask: jax.Array,
    own_mask: jax.Array,
    cache: Cache,
) -> tuple[jax.Array, Cache]:
    """Feeds one token a slot and returns the states that predict the next ones.

    Args:
      params: as `unstack_layers` returns them.
      tokens, positions: int32[P, G].
      column: int32 scalar, the ring column that this step writes.
      prompt_mask: bool[P, G, S], prompt tokens that a slot sees; own_mask: bool[P, G, R], the column included.
      cache: updated in place under jit.

    Returns:
      Normed states [P, G, hidden_size], and the cache.
    """
    rope = rope_table(config, positions[..., None])
    x, keys, values = embed(config, params, tokens)[:, :, None], list(cache.k), list(cache.v)

    def write(all_: jax.Array, new: jax.Array) -> jax.Array:  # new [P, G, 1, kv_heads, head_dim]
        new = new.reshape(-1, *new.shape[3:])[:, :, None]
        return lax.dynamic_update_slice_in_dim(all_, new, column, axis=2)

    by_group = lambda x: x.reshape(*tokens.shape, *x.shape[1:])  # noqa: E731
    for i, layer in enumerate(params["layers"]):

        def attend(
            q: jax.Array, k: jax.Array, v: jax.Array, i: int = i
        ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            own = write(cache.k[i], k), write(cache.v[i], v)
            shared = cache.prompt_k[i], cache.prompt_v[i]
            by_lane = by_group(own[0]), by_group(own[1])
            return grouped_attention(q, *shared, prompt_mask[:, :, None], *by_lane, own_mask[:, :, None]), own

        with jax.named_scope("layer"):
            x, (keys[i], values[i]) = _block(config, layer, x, rope, attend)
    return _final_norm(config, params, x[:, :, 0]), cache._replace(k=tuple(keys), v=tuple(values))
