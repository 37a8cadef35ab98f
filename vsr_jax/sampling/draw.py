"""Randomness by row, and a categorical draw that costs two uniforms a row."""

import jax
import jax.numpy as jnp

_BLOCK = 128


def row_keys(seed: jax.Array, prompt_id: jax.Array, sample_id: jax.Array) -> jax.Array:
    """One key a row from (seed, prompt id, sample id): the same whatever else is in the batch. Ids are int32[N]."""
    base = jax.random.key(seed)
    return jax.vmap(lambda p, s: jax.random.fold_in(jax.random.fold_in(base, p), s))(prompt_id, sample_id)


def draw(
    keys: jax.Array, position: jax.Array, logits: jax.Array, forced: jax.Array | int = -1
) -> tuple[jax.Array, jax.Array]:
    """Draws one token a row by inverting the cumulative distribution, in two levels.

    A first uniform picks a block of the vocabulary by its mass, a second one a token within the block. The two levels
    keep tokens of probability below the spacing of one float32 uniform reachable, and read the vocabulary twice (for
    the largest logit and for the masses) where Gumbel noise would cost a random number for every entry.

    Args:
      keys: key[N]; position: int32 scalar or [N], folded into the keys.
      logits: float32[N, V], up to a constant a row.
      forced: int32 scalar or [N], tokens to take without a draw; -1 draws.

    Returns:
      int32[N], and the log-probability of each, float32[N]. A token of probability zero is never drawn.
    """
    rows = jnp.arange(logits.shape[0])
    position = jnp.broadcast_to(position, rows.shape)
    uniforms = jax.vmap(lambda key, at: jax.random.uniform(jax.random.fold_in(key, at), (2,)))(keys, position)
    # A CPU's product leaves the logits of few rows column by column; read so, they need not be turned round.
    columns = logits.T
    top = columns.max(0)
    blocks = jnp.pad(columns, ((0, -len(columns) % _BLOCK), (0, 0)), constant_values=-jnp.inf)
    blocks = blocks.reshape(-1, _BLOCK, len(rows))
    mass = jnp.exp(blocks - top).sum(1)
    block = _invert(jnp.cumsum(mass.T, axis=-1), uniforms[:, 0])
    inside = jnp.exp(blocks[block, :, rows] - top[:, None])
    drawn = block * _BLOCK + _invert(jnp.cumsum(inside, axis=-1), uniforms[:, 1])
    token = jnp.where(forced >= 0, forced, drawn).astype(jnp.int32)
    return token, columns[token, rows] - top - jnp.log(mass.sum(0))


def _invert(cumulative: jax.Array, uniform: jax.Array) -> jax.Array:
    """First index whose cumulative mass exceeds `uniform` times the total; entries without mass cannot be first."""
    total = cumulative[:, -1:]
    # Rounding could lift the product to the total itself, which nothing exceeds.
    level = jnp.minimum(uniform[:, None] * total, jnp.nextafter(total, jnp.zeros_like(total)))
    return jnp.argmax(cumulative > level, axis=-1)
