"""Penalties that keep the policy near a reference, from the sampled token's log-probabilities.

With d = log ref - log pi, on samples of pi:
k1 = -d, unbiased for KL(pi || ref), with zero expected gradient when differentiated as a loss;
k2 = d^2 / 2, biased in value, its expected gradient is that of KL(pi || ref);
k3 = exp(d) - d - 1, unbiased and never negative, its expected gradient is that of KL(ref || pi).
(Schulman, "Approximating KL divergence", 2020; the gradients are enumerated in the tests.)
"""

from typing import Literal

import jax
import jax.numpy as jnp

from vsr_jax.objectives.reducers import Reducer, token_mean
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.scoring import target_logprob

Estimator = Literal["k1", "k2", "k3"]


def kl_estimate(logp: jax.Array, logp_ref: jax.Array, estimator: Estimator) -> jax.Array:
    """Per-token estimate of KL(pi || ref) in nats, from the log-probabilities of the sampled token."""
    d = logp_ref - logp
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return 0.5 * d * d
    if estimator == "k3":
        return jnp.expm1(d) - d
    raise ValueError(f"estimator is {estimator!r}; use k1, k2 or k3")


def kl(estimator: Estimator = "k2", *, temperature: float = 1.0, reducer: Reducer = token_mean) -> Objective:
    """The estimate as a loss term, to `batch.logp_ref`; scale it by beta: `grpo() + 0.04 * kl("k2")`."""

    def per_token(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        value = kl_estimate(target_logprob(logits, batch.target, temperature), batch.logp_ref, estimator)
        return value, {f"kl_{estimator}": value}

    return Objective(per_token, reducer)
