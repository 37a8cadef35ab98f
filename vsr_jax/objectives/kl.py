"""Penalties that keep the policy near another one, usually a frozen reference.

From the sampled token's log-probabilities, with d = log ref - log pi, on samples of pi:
k1 = -d, unbiased for KL(pi || ref), with zero expected gradient when differentiated as a loss;
k2 = d^2 / 2, biased in value, its expected gradient is that of KL(pi || ref);
k3 = exp(d) - d - 1, unbiased and never negative, its expected gradient is that of KL(ref || pi).
(Schulman, "Approximating KL divergence", 2020; the gradients are enumerated in the tests.)

From the logits of both, exactly, at the price of a forward pass of the other model inside the update.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from vsr_jax.objectives.reducers import Reducer, token_mean
from vsr_jax.objectives.statistics import js_divergence, kl_divergence
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.scoring import target_logprob

Estimator = Literal["k1", "k2", "k3"]
Formula = Literal["policy||other", "other||policy"]


def kl_estimate(logp: jax.Array, logp_ref: jax.Array, estimator: Estimator) -> jax.Array:
    """Per-token estimate of KL(pi || ref) in nats, from the log-probabilities of the sampled token; any shape."""
    d = logp_ref - logp
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return 0.5 * d * d
    if estimator == "k3":
        return jnp.expm1(d) - d
    raise ValueError(f"estimator is {estimator!r}; use k1, k2 or k3")


def kl(
    estimator: Estimator = "k2",
    *,
    importance: bool = False,
    other: str | None = None,
    temperature: float = 1.0,
    reducer: Reducer = token_mean,
) -> Objective:
    """The estimate as a loss term; scale it by beta: `grpo() + 0.04 * kl("k2")`.

    Args:
      estimator: see above.
      importance: multiply by r = pi / pi_old and differentiate that too. The expectation over samples of pi_old is
        then the divergence as a function of pi, so that k1 and k3 get its true gradient, on-policy and off-policy
        (for k3: DeepSeek-V3.2, arXiv 2512.02556). Not for k2, whose value is biased.
      other: name of a model given to the update, for a reference that moves; None reads `batch.logp_ref`.
      temperature: of both policies.
    """
    if importance and estimator == "k2":
        raise ValueError(
            "importance=True differentiates the value of the estimator, which is biased for k2; use k1 or k3"
        )

    def per_token(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        logp = target_logprob(logits, batch.target, temperature)
        if other is None:
            logp_ref = batch.logp_ref
        else:
            logp_ref = target_logprob(batch.logits_of(other), batch.target, temperature)
        value = kl_estimate(logp, logp_ref, estimator)
        loss = jnp.exp(logp - batch.logp_old) * value if importance else value
        return loss, {f"kl_{estimator}": value}

    return Objective(per_token, reducer)


def full_kl(
    formula: Formula = "policy||other",
    *,
    other: str = "reference",
    temperature: float = 1.0,
    reducer: Reducer = token_mean,
) -> Objective:
    """The exact KL over the whole vocabulary at each position, as a penalty or as distillation.

    Args:
      formula: `policy||other` is the sum of pi log(pi / other), called reverse KL in distillation and what k1 and k3
        estimate; `other||policy` is the sum of other log(other / pi), called forward KL.
      other: name of a model given to the update.
      temperature: of both policies.
    """
    if formula not in ("policy||other", "other||policy"):
        raise ValueError(f"formula is {formula!r}; use policy||other or other||policy")

    def per_token(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        policy, fixed = logits / temperature, batch.logits_of(other) / temperature
        value = kl_divergence(policy, fixed) if formula == "policy||other" else kl_divergence(fixed, policy)
        return value, {f"kl_{formula.replace('other', other).replace('||', '_to_')}": value}

    return Objective(per_token, reducer)


def full_jsd(
    beta: float = 0.5, *, other: str = "teacher", temperature: float = 1.0, reducer: Reducer = token_mean
) -> Objective:
    """Generalised Jensen-Shannon divergence over the whole vocabulary (GKD, arXiv 2306.13649, section 2).

    beta KL(other || m) + (1 - beta) KL(pi || m), with m = beta other + (1 - beta) pi.

    Args:
      beta: strictly between 0 and 1; small values act like `other||policy`, large ones like `policy||other`, both
        scaled down: use `full_kl` for the limits.
      other, temperature: as in `full_kl`.
    """

    def per_token(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        value = js_divergence(batch.logits_of(other) / temperature, logits / temperature, beta)
        return value, {f"jsd_{other}_policy": value}

    return Objective(per_token, reducer)
