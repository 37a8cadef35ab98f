"""Statistics of distributions given as logits, finite in value and gradient also where logits are -inf.

Each product with a probability of zero is replaced before it is formed, not after: the gradient must not see 0 * inf
either. Everything is in nats, over the last axis.
"""

import jax
import jax.numpy as jnp


def entropy(logits: jax.Array) -> jax.Array:
    """Shannon entropy, minus the sum of p log p, with 0 log 0 = 0."""
    logp = jax.nn.log_softmax(logits, axis=-1)
    possible = jnp.isfinite(logp)
    safe = jnp.where(possible, logp, 0.0)
    return -jnp.where(possible, jnp.exp(safe) * safe, 0.0).sum(-1)


def kl_divergence(logits_p: jax.Array, logits_q: jax.Array) -> jax.Array:
    """KL(p || q), the sum of p log(p / q). Infinite where q excludes what p allows."""
    logp, logq = jax.nn.log_softmax(logits_p, axis=-1), jax.nn.log_softmax(logits_q, axis=-1)
    possible = jnp.isfinite(logp)
    safe_p, safe_q = jnp.where(possible, logp, 0.0), jnp.where(possible, logq, 0.0)
    return jnp.where(possible, jnp.exp(safe_p) * (safe_p - safe_q), 0.0).sum(-1)


def js_divergence(logits_p: jax.Array, logits_q: jax.Array, beta: float = 0.5) -> jax.Array:
    """Generalised Jensen-Shannon divergence: beta KL(p || m) + (1 - beta) KL(q || m), with m = beta p + (1 - beta) q.

    Symmetric at 0.5, where it is at most ln 2. Divided by beta it tends to KL(p || q) as beta tends to 0, and divided
    by 1 - beta to KL(q || p) as beta tends to 1 (arXiv 2306.13649, section 2).

    Raises:
      ValueError: beta is not between 0 and 1, where the divergence is zero for all p and q.
    """
    if not 0 < beta < 1:
        raise ValueError(f"beta is {beta}; it must lie between 0 and 1, use kl_divergence for the limits")
    logp, logq = jax.nn.log_softmax(logits_p, axis=-1), jax.nn.log_softmax(logits_q, axis=-1)
    p, q = jnp.exp(logp), jnp.exp(logq)
    mixture = beta * p + (1 - beta) * q
    log_mixture = jnp.log(jnp.where(mixture > 0, mixture, 1.0))

    def to_mixture(prob: jax.Array, log: jax.Array) -> jax.Array:
        log = jnp.where(prob > 0, log, 0.0)
        return jnp.where(prob > 0, jnp.exp(log) * (log - log_mixture), 0.0).sum(-1)

    return beta * to_mixture(p, logp) + (1 - beta) * to_mixture(q, logq)
