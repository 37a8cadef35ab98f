"""Randomness by row, and a categorical draw that costs two uniforms a row."""

import jax
import jax.numpy as jnp

_BLOCK = 128


def row_keys(seed: jax.Array, prompt_id: jax.Array, sample_id: jax.Array) -> jax.Array:
    """One key a row from (seed, prompt id, sample id): the same whatever else is in the batch. Ids are int32[N]."""
    base = jax.random.key(seed)
    return jax.vmap(lambda p, s: jax.random.fold_in(jax.random.fold_in(base, p), s))(prompt_id, sample_id)


def draw(keys: jax.Array, position: jax.Array, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draws one token a row by inverting the cumulative distribution, in two levels.

    A first uniform picks a block of the vocabulary by its mass, a second one a token within the block. The two levels
    keep tokens of probability below the spacing of one float32 uniform reachable, and read the vocabulary twice (for
    the largest logit and for the masses) where Gumbel noise would cost a random number for every entry.

    Args:
      keys: key[N]; position: int32 scalar or [N], folded into the keys; logits: float32[N, V], up to a constant a row.

    Returns:
      int32[N], and the log-normaliser float32[N]: a token's logit minus it is its log-probability. A token of
      probability zero is never drawn.
    """
    position = jnp.broadcast_to(position, logits.shape[:1])
    uniforms = jax.vmap(lambda key, at: jax.random.uniform(jax.random.fold_in(key, at), (2,)))(keys, position)
    top = logits.max(-1, keepdims=True)
    missing = -logits.shape[1] % _BLOCK
    blocks = jnp.pad(logits, ((0, 0), (0, missing)), constant_values=-jnp.inf).reshape(logits.shape[0], -1, _BLOCK)
    mass = jnp.exp(blocks - top[..., None]).sum(-1)
    block = _invert(jnp.cumsum(mass, axis=-1), uniforms[:, 0])
    inside = jnp.exp(jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0] - top)
    token = block * _BLOCK + _invert(jnp.cumsum(inside, axis=-1), uniforms[:, 1])
    return token.astype(jnp.int32), top[:, 0] + jnp.log(mass.sum(-1))


def _invert(cumulative: jax.Array, uniform: jax.Array) -> jax.Array:
    """First index whose cumulative mass exceeds `uniform` times the total; entries without mass cannot be first."""
    total = cumulative[:, -1:]
    # Rounding could lift the product to the total itself, which nothing exceeds.
    level = jnp.minimum(uniform[:, None] * total, jnp.nextafter(total, jnp.zeros_like(total)))
    return jnp.argmax(cumulative > level, axis=-1)
