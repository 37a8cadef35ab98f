"""The decoder, as pure functions over a nested dict of arrays.

Three passes share one block: `hidden_states` (whole sequences), `grouped_hidden_states` (one prompt, G responses,
the prompt computed once) and `decode_step` (one token a row, with a cache updated in place).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from vsr_jax.errors import UserError
from vsr_jax.model.attention import grouped_attention, self_attention
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.model.rope import apply_rope, rope_table

Layer = dict[str, jax.Array]


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """Root-mean-square norm over the last axis (arXiv 1910.07467), computed in float32."""
    wide = x.astype(jnp.float32)
    return weight * (wide * lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)).astype(x.dtype)


def _linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    out = jnp.einsum("...i,oi->...o", x, weight)
    return out if bias is None else out + bias


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
        x = x + _linear(jax.nn.silu(_linear(y, layer["gate"])) * _linear(y, layer["up"]), layer["down"])
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
        out = jnp.einsum("...d,vd->...v", hidden, weight, preferred_element_type=jnp.float32)
        if config.num_tokens < config.vocab_size:
            out = jnp.where(jnp.arange(config.vocab_size) < config.num_tokens, out, -jnp.inf)
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
        x, _ = _block(config, _cast(config, layer), x, rope, attend)
        return x, x if every_layer else None

    x = first = embed(config, params, tokens)
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
    prompt_mask = jnp.arange(prompt_width) < prompt_length[:, None]
    causal = jnp.tril(jnp.ones((width - 1, width - 1), bool))

    def body(carry: tuple[jax.Array, jax.Array], layer: Layer) -> tuple[tuple[jax.Array, jax.Array], None]:
        prompt_x, x = carry
        layer = _cast(config, layer)
        attend_prompt = lambda q, k, v: (self_attention(q, k, v, None), (k, v))  # noqa: E731
        prompt_x, (prompt_k, prompt_v) = _block(config, layer, prompt_x, prompt_rope, attend_prompt)
        attend = lambda q, k, v: (grouped_attention(q, prompt_k, prompt_v, prompt_mask, k, v, causal), None)  # noqa: E731
        x, _ = _block(config, layer, x, rope, attend)
        return (prompt_x, x), None

    carry = embed(config, params, prompt_tokens), embed(config, params, tokens)
    with jax.named_scope("layer"):
        (prompt_x, x), _ = lax.scan(jax.checkpoint(body) if remat else body, carry, params["layers"])
    last = jnp.take_along_axis(prompt_x, (prompt_length - 1)[:, None, None], axis=1)
    first = jnp.broadcast_to(last[:, None], (*x.shape[:2], 1, x.shape[-1]))
    assert x.shape[1] == group
    return _final_norm(config, params, jnp.concatenate([first, x], axis=2))


class Cache(NamedTuple):
    """Keys and values of P prompts with G responses each, all layers.

    Attributes:
      prompt_k, prompt_v: [L, P, S, kv_heads, head_dim], written once by `prefill`, read-only after.
      prompt_mask: bool[P, S].
      k, v: [L, P, G, R, kv_heads, head_dim], one slot written a step, in place.
    """

    prompt_k: jax.Array
    prompt_v: jax.Array
    prompt_mask: jax.Array
    k: jax.Array
    v: jax.Array


def prefill(
    config: ModelConfig, params: Params, prompt_tokens: jax.Array, prompt_length: jax.Array, group: int, slots: int
) -> tuple[jax.Array, Cache]:
    """Runs prompts int32[P, S] once and makes room for `group` responses of `slots` tokens each.

    Returns:
      The normed state of each prompt's last token, [P, hidden_size], and the cache.
    """
    rope = rope_table(config, jnp.broadcast_to(jnp.arange(prompt_tokens.shape[1]), prompt_tokens.shape))

    def body(x: jax.Array, layer: Layer) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        attend = lambda q, k, v: (self_attention(q, k, v, None), (k, v))  # noqa: E731
        return _block(config, _cast(config, layer), x, rope, attend)

    with jax.named_scope("layer"):
        x, (k, v) = lax.scan(body, embed(config, params, prompt_tokens), params["layers"])
    last = jnp.take_along_axis(x, (prompt_length - 1)[:, None, None], axis=1)[:, 0]
    own = (config.num_layers, prompt_tokens.shape[0], group, slots, config.num_kv_heads, config.head_dim)
    mask = jnp.arange(prompt_tokens.shape[1]) < prompt_length[:, None]
    return _final_norm(config, params, last), Cache(k, v, mask, jnp.zeros(own, k.dtype), jnp.zeros(own, v.dtype))


def decode_step(
    config: ModelConfig, params: Params, tokens: jax.Array, prompt_length: jax.Array, step: jax.Array, cache: Cache
) -> tuple[jax.Array, Cache]:
    """Feeds response token number `step` of every row and returns the state that predicts the next one.

    Args:
      tokens: int32[P, G].
      prompt_length: int32[P].
      step: int32 scalar: how many response tokens came before. The rows' write position is the same.
      cache: slots below `step` hold earlier tokens.

    Returns:
      Normed states [P, G, hidden_size], and the cache with slot `step` written.
    """
    rope = rope_table(config, jnp.broadcast_to((prompt_length + step)[:, None, None], (*tokens.shape, 1)))
    seen = (jnp.arange(cache.k.shape[3]) <= step)[None]

    def body(index: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        x, all_k, all_v = carry
        at = lambda a: lax.dynamic_index_in_dim(a, index, keepdims=False)  # noqa: E731

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            zero = jnp.zeros_like(index)
            where = (index, zero, zero, step, zero, zero)
            new_k = lax.dynamic_update_slice(all_k, k[None], where)
            new_v = lax.dynamic_update_slice(all_v, v[None], where)
            mixed = grouped_attention(
                q, at(cache.prompt_k), at(cache.prompt_v), cache.prompt_mask, at(new_k), at(new_v), seen
            )
            return mixed, (new_k, new_v)

        layer = _cast(config, jax.tree.map(at, params["layers"]))
        x, (all_k, all_v) = _block(config, layer, x, rope, attend)
        return x, all_k, all_v

    x = embed(config, params, tokens)[:, :, None]
    with jax.named_scope("layer"):
        x, k, v = lax.fori_loop(0, config.num_layers, body, (x, cache.k, cache.v))
    return _final_norm(config, params, x[:, :, 0]), cache._replace(k=k, v=v)
