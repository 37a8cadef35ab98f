"""Attention, as exact softmax over one or two sets of keys.

`self_attention` is one function with several ways to compute it: plain XLA on any device, JAX's splash kernel on
TPUs, cuDNN's fused attention on NVIDIA GPUs. The platform is known when a program is lowered, not before: programs
are also compiled for TPUs on machines that have none.

Queries are [..., Q, heads, head_dim]; keys and values [..., S, kv_heads, head_dim], or with heads first where they
come from a cache: then each head's keys lie together, as the products over them read them. Several query heads share
one key head (grouped-query attention). Scores and softmax are float32.
"""

import jax
import jax.numpy as jnp
from jax import lax

from vsr_jax.model import splash

NEGATIVE = -1e30
"""Score of a masked key: finite, so that a row whose keys are all masked stays finite."""

QUERY_BLOCK = 512
"""Queries scored at a time, which bounds the score array for long sequences."""


def _scores(q: jax.Array, k: jax.Array, equation: str) -> jax.Array:
    """Scaled scores in float32; `q` is split into [..., kv_heads, group, head_dim]."""
    return jnp.einsum(equation, q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5


def _masked(scores: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(mask, scores, NEGATIVE)


def _split_heads(q: jax.Array, kv_heads: int) -> jax.Array:
    return q.reshape(*q.shape[:-2], kv_heads, q.shape[-2] // kv_heads, q.shape[-1])


def self_attention(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array | None) -> jax.Array:
    """Causal attention within rows, by the fastest way that the platform and the shapes allow.

    Args:
      q: [B, T, heads, head_dim]; k, v: [B, T, kv_heads, head_dim].
      segments: int32[B, T] or None. A token sees earlier tokens of its own segment; segment 0 is padding.

    Returns:
      [B, T, heads, head_dim] in the dtype of `v`.
    """
    kernels = {}
    if splash.supports(q):
        kernels["tpu"] = splash.splash_attention
    if _cudnn_supports(q, segments):
        kernels["cuda"] = _cudnn_attention
    if not kernels:
        return portable_attention(q, k, v, segments)
    return lax.platform_dependent(q, k, v, segments, default=portable_attention, **kernels)


def _cudnn_supports(q: jax.Array, segments: jax.Array | None) -> bool:
    """Half precision, heads of up to 128 in steps of 8, one text a row; cuDNN must be there when JAX asks for it."""
    plain = segments is None and q.dtype in (jnp.bfloat16, jnp.float16)
    return plain and q.shape[3] <= 128 and q.shape[3] % 8 == 0 and jax.default_backend() == "gpu"


def _cudnn_attention(q: jax.Array, k: jax.Array, v: jax.Array, segments: None) -> jax.Array:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn").astype(v.dtype)


def portable_attention(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array | None) -> jax.Array:
    """`self_attention` in plain XLA, a block of queries at a time."""
    length = q.shape[1]
    index = jnp.arange(length)

    def block(start: jax.Array | int, q: jax.Array) -> jax.Array:
        mask = (start + jnp.arange(q.shape[1]))[:, None] >= index[None, :]
        mask = mask[None, None, None]
        if segments is not None:
            own = lax.dynamic_slice_in_dim(segments, start, q.shape[1], axis=1)
            mask &= (own[:, :, None] == segments[:, None, :])[:, None, None]
        scores = _scores(_split_heads(q, k.shape[2]), k, "bthgd,bshd->bhgts")
        weights = jax.nn.softmax(_masked(scores, mask), axis=-1)
        return jnp.einsum("bhgts,bshd->bthgd", weights.astype(v.dtype), v).reshape(q.shape)

    if length <= QUERY_BLOCK:
        return block(0, q)
    blocks = -(-length // QUERY_BLOCK)
    padded = jnp.pad(q, ((0, 0), (0, blocks * QUERY_BLOCK - length), (0, 0), (0, 0)))
    if segments is not None:
        segments = jnp.pad(segments, ((0, 0), (0, blocks * QUERY_BLOCK - length)))
        k, v = (jnp.pad(x, ((0, 0), (0, blocks * QUERY_BLOCK - length), (0, 0), (0, 0))) for x in (k, v))
        index = jnp.arange(blocks * QUERY_BLOCK)
    stacked = padded.reshape(q.shape[0], blocks, QUERY_BLOCK, *q.shape[2:]).swapaxes(0, 1)
    starts = jnp.arange(blocks) * QUERY_BLOCK
    out = lax.map(jax.checkpoint(lambda args: block(*args)), (starts, stacked))
    return out.swapaxes(0, 1).reshape(padded.shape)[:, :length]


def grouped_attention(
    q: jax.Array,
    prompt_k: jax.Array,
    prompt_v: jax.Array,
    prompt_mask: jax.Array,
    own_k: jax.Array,
    own_v: jax.Array,
    own_mask: jax.Array,
) -> jax.Array:
    """Attention of G responses to their one shared prompt and to themselves, in one softmax.

    The prompt's keys are stored once a prompt, so that a group costs its memory and bytes once.

    Args:
      q: [P, G, Q, heads, head_dim].
      prompt_k, prompt_v: [P, kv_heads, S, head_dim]; prompt_mask: bool, broadcasts to [P, G, Q, S].
      own_k, own_v: [P, G, kv_heads, R, head_dim]; own_mask: bool, broadcasts to [P, G, Q, R].

    Returns:
      [P, G, Q, heads, head_dim] in the dtype of `own_v`.
    """
    split = _split_heads(q, own_k.shape[2])
    # A response's own products know no prompt: where keys lie slot by slot, as in a sampler's cache, they stay so.
    flat = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
    lanes = lambda x: x.reshape(*q.shape[:2], *x.shape[1:])  # noqa: E731
    shared = _masked(_scores(split, prompt_k, "pgqhnd,phsd->pghnqs"), prompt_mask[:, :, None, None])
    own = _masked(lanes(_scores(flat(split), flat(own_k), "xqhnd,xhrd->xhnqr")), own_mask[:, :, None, None])
    # One normaliser over both parts: subtract the common maximum, exponentiate apart, divide once at the end.
    top = lax.stop_gradient(jnp.maximum(shared.max(-1, keepdims=True), own.max(-1, keepdims=True)))
    shared, own = jnp.exp(shared - top), jnp.exp(own - top)
    total = shared.sum(-1) + own.sum(-1)
    # Heads stay before queries until the end: a CPU takes three times as long to write them the other way round.
    out = jnp.einsum("pghnqs,phsd->pghnqd", shared.astype(own_v.dtype), prompt_v, preferred_element_type=jnp.float32)
    mixed = flat(own).astype(own_v.dtype), flat(own_v)
    out += lanes(jnp.einsum("xhnqr,xhrd->xhnqd", *mixed, preferred_element_type=jnp.float32))
    return jnp.moveaxis(out / total[..., None], -2, 2).reshape(q.shape).astype(own_v.dtype)
