"""Statistics of a distribution given as logits, finite also where logits are -inf."""

import jax
import jax.numpy as jnp


def entropy(logits: jax.Array) -> jax.Array:
    """Shannon entropy in nats over the last axis; 0 log 0 = 0 in value and gradient."""
    logp = jax.nn.log_softmax(logits, axis=-1)
    possible = jnp.isfinite(logp)
    # Replaced before the product, not after: the gradient must not see 0 * inf either.
    safe = jnp.where(possible, logp, 0.0)
    return -jnp.where(possible, jnp.exp(safe) * safe, 0.0).sum(-1)
