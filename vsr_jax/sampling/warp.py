"""Temperature, top-k and top-p, without sorting the vocabulary.

Keeping the likeliest tokens is keeping those above a threshold. The threshold is found by bisection over the bit
patterns of the probabilities: a non-negative float32 orders like its bits, so thirty halvings pin it exactly.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

_ONE_BITS = 0x3F800000  # float32 1.0


def _largest_threshold(p: jax.Array, enough: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """The largest t, float32[N], for which `enough(p >= t)` holds; `enough` must hold at 0 and be monotone."""

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        good = enough(p >= lax.bitcast_convert_type(middle, jnp.float32)[:, None])
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    low = jnp.zeros(p.shape[0], jnp.int32)
    low, _ = lax.fori_loop(0, 30, halve, (low, jnp.full_like(low, _ONE_BITS + 1)))
    return lax.bitcast_convert_type(low, jnp.float32)


def warps(temperature: jax.Array, top_p: jax.Array, top_k: jax.Array) -> jax.Array:
    """Whether any row asks for another distribution than the policy's own: a bool scalar."""
    return jnp.any((temperature != 1) | (top_p < 1) | (top_k > 0))


def warp(logits: jax.Array, raw: jax.Array, temperature: jax.Array, top_p: jax.Array, top_k: jax.Array) -> jax.Array:
    """The distribution to draw from: temperature, then top-k, then top-p, as Hugging Face and vLLM order them.

    Args:
      logits: float32[N, V]; -inf marks tokens that cannot occur.
      raw: their log-softmax, which is the answer when no row warps anything.
      temperature, top_p: float32[N]; top_k: int32[N]. Temperature 0 puts all mass on the first likeliest token.
        Equal probabilities at a threshold are all kept.

    Returns:
      Normalised log-probabilities float32[N, V], -inf outside the kept set.
    """
    greedy = temperature <= 0

    def truncate(logp: jax.Array) -> jax.Array:
        p = jnp.exp(logp)
        wanted = jnp.where(top_k > 0, jnp.minimum(top_k, p.shape[-1]), p.shape[-1])
        cut = lax.cond(
            jnp.any(top_k > 0),
            lambda: _largest_threshold(p, lambda keep: keep.sum(-1) >= wanted),
            lambda: jnp.zeros(p.shape[0], jnp.float32),
        )
        p = jnp.where(p >= cut[:, None], p, 0.0)
        target = jnp.where(top_p < 1, jnp.maximum(top_p, 0.0) * p.sum(-1), 0.0)
        reached = lambda keep: jnp.where(keep, p, 0.0).sum(-1) >= target  # noqa: E731
        # A target of zero would be reached by the empty set; the likeliest token always stays.
        cut = jnp.minimum(_largest_threshold(p, reached), p.max(-1))
        cut = jnp.where(top_p < 1, cut, 0.0)
        kept = (p >= cut[:, None]) & (p > 0)
        return jax.nn.log_softmax(jnp.where(kept, logp, -jnp.inf), axis=-1)

    def reshape() -> jax.Array:
        logp = jax.nn.log_softmax(logits / jnp.where(greedy, 1.0, temperature)[:, None], axis=-1)
        logp = lax.cond(jnp.any((top_p < 1) | (top_k > 0)), truncate, lambda logp: logp, logp)
        best = jnp.argmax(logits, axis=-1)[:, None] == jnp.arange(logits.shape[-1])
        return jnp.where(greedy[:, None], jnp.where(best, 0.0, -jnp.inf), logp)

    return lax.cond(warps(temperature, top_p, top_k), reshape, lambda: raw)
