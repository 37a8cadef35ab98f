"""Policy-gradient terms. `temperature` is that of the policy whose log-probability is scored: the one of sampling,
for a ratio of one at the start. With r = pi / pi_old and A the advantage, every term is minus an objective."""

from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from vsr_jax.objectives.reducers import Reducer, sequence_mean, sequence_sum, token_mean
from vsr_jax.objectives.statistics import entropy
from vsr_jax.objectives.types import Objective, Prepare, TokenBatch
from vsr_jax.scoring import target_logprob

PerTokenResult = tuple[jax.Array, dict[str, jax.Array]]


def clipped_surrogate(
    ratio: jax.Array, advantage: jax.Array, low: float, high: float, dual: float | None = None
) -> jax.Array:
    """The loss that `grpo` explains, for ratios and advantages of any shape."""
    loss = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - low, 1 + high) * advantage)
    if dual is None:
        return loss
    if dual <= 1:
        raise ValueError(f"dual clip is {dual}; it bounds a ratio above, so it must be larger than 1")
    return jnp.where(advantage < 0, jnp.minimum(loss, -dual * advantage), loss)


def _clip_metrics(ratio: jax.Array, advantage: jax.Array, low: float, high: float) -> dict[str, jax.Array]:
    """The ratio, and where clipping has cut the gradient."""
    return {
        "ratio": ratio,
        "ratio_max": ratio,
        "clipped_low": ((ratio < 1 - low) & (advantage < 0)).astype(jnp.float32),
        "clipped_high": ((ratio > 1 + high) & (advantage > 0)).astype(jnp.float32),
    }


def grpo(
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float | None = None,
    temperature: float = 1.0,
    reducer: Reducer = token_mean,
) -> Objective:
    """The clipped surrogate: minus min(r A, clip(r, 1 - clip_low, 1 + clip_high) A).

    PPO's pessimistic bound (arXiv 1707.06347, equation 7) with the two clip ranges of DAPO (arXiv 2503.14476, eq. 8).

    Args:
      clip_low, clip_high: how far the ratio may fall or rise before its gradient is cut.
      dual_clip: c > 1; where A < 0 the objective is at least c A, so that a ratio above c is cut too (dual-clip PPO,
        arXiv 1912.09729). None leaves it out.
      temperature: see above.
    """

    def per_token(logits: jax.Array, batch: TokenBatch) -> PerTokenResult:
        log_ratio = target_logprob(logits, batch.target, temperature) - batch.logp_old
        ratio = jnp.exp(log_ratio)
        loss = clipped_surrogate(ratio, batch.advantage, clip_low, clip_high, dual_clip)
        metrics = {
            "policy_loss": loss,
            **_clip_metrics(ratio, batch.advantage, clip_low, clip_high),
            "kl_old": jnp.expm1(-log_ratio) + log_ratio,
        }
        if dual_clip is not None:
            metrics["clipped_dual"] = ((ratio > dual_clip) & (batch.advantage < 0)).astype(jnp.float32)
        return loss, metrics

    return Objective(per_token, reducer)


def gspo(
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    temperature: float = 1.0,
    reducer: Reducer = sequence_mean,
) -> Objective:
    """The clipped surrogate of the sequence's ratio s = (pi(y) / pi_old(y))^(1 / |y|) (arXiv 2507.18071, eq. 5 and 7).

    Written per token, with s_t = sg(s) pi_t / sg(pi_t), whose value is s and whose gradients, averaged over the
    tokens, add up to the gradient of s (there called GSPO-token, eq. 13 and 14). s itself needs a forward pass before
    the gradient; see `Prepare`. Forced tokens are no part of y.

    Args:
      clip_low, clip_high: as the paper's experiments set them; far smaller than a token's, since s is a mean.
      temperature: see above.
      reducer: `sequence_mean` is the paper's.
    """

    def measure(logits: jax.Array, batch: TokenBatch) -> jax.Array:
        return target_logprob(logits, batch.target, temperature) - batch.logp_old

    def gather(log_ratio: jax.Array, tokens: TokenBatch, sequence: jax.Array | None) -> dict[str, jax.Array]:
        counted = (tokens.weight != 0).astype(jnp.float32)
        total = sequence_sum(jnp.where(counted > 0, log_ratio, 0.0), sequence)
        return {"log_sequence_ratio": total / jnp.maximum(sequence_sum(counted, sequence), 1)}

    def per_token(logits: jax.Array, batch: TokenBatch) -> PerTokenResult:
        logp = target_logprob(logits, batch.target, temperature)
        ratio = jnp.exp(batch.stored("log_sequence_ratio") + logp - lax.stop_gradient(logp))
        loss = clipped_surrogate(ratio, batch.advantage, clip_low, clip_high)
        return loss, {"policy_loss": loss, **_clip_metrics(ratio, batch.advantage, clip_low, clip_high)}

    return Objective(per_token, reducer, (Prepare(measure, gather),))


def cispo(
    *, clip_low: float = 1.0, clip_high: float = 4.0, temperature: float = 1.0, reducer: Reducer = token_mean
) -> Objective:
    """Minus sg(clip(r, 1 - clip_low, 1 + clip_high)) A log pi (arXiv 2506.13585, equations 4 and 5).

    The weight is clipped, not the gradient: every token keeps pulling.

    Args:
      clip_low: 1 sets no lower bound, as in the paper.
      clip_high: the paper tunes it and does not say to what; 4 is ours.
      temperature: see above.
    """

    def per_token(logits: jax.Array, batch: TokenBatch) -> PerTokenResult:
        logp = target_logprob(logits, batch.target, temperature)
        ratio = lax.stop_gradient(jnp.exp(logp - batch.logp_old))
        weight = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
        loss = -weight * batch.advantage * logp
        return loss, {
            "policy_loss": loss,
            "ratio": ratio,
            "ratio_max": ratio,
            "clipped": (weight != ratio).astype(jnp.float32),
        }

    return Objective(per_token, reducer)


def reinforce(*, temperature: float = 1.0, reducer: Reducer = token_mean) -> Objective:
    """Minus A log pi, the score function (Williams, Machine Learning 8, 1992): unbiased on-policy, and only there."""

    def per_token(logits: jax.Array, batch: TokenBatch) -> PerTokenResult:
        loss = -batch.advantage * target_logprob(logits, batch.target, temperature)
        return loss, {"policy_loss": loss}

    return Objective(per_token, reducer)


def truncated_importance(
    objective: Objective, *, behavior: Literal["raw", "warped"] = "raw", cap: float = 2.0
) -> Objective:
    """Weights a loss by min(pi_old / mu, cap), where mu drew the token and pi_old is the trainer's own pi at that time.

    Sampler and trainer disagree by rounding, or by design where top-p truncated the draw; the weight makes up for it
    (Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025). It carries no
    gradient. `batch.logp_old` must be the trainer's, recomputed; where it is the sampler's own, the weight is one.

    Args:
      objective: any per-token loss on samples.
      behavior: mu is the sampler's `raw` policy, or the `warped` distribution after temperature and truncation.
      cap: largest weight.
    """
    if behavior not in ("raw", "warped"):
        raise ValueError(f"behavior is {behavior!r}; use raw or warped")

    def per_token(logits: jax.Array, batch: TokenBatch) -> PerTokenResult:
        value, metrics = objective.per_token(logits, batch)
        importance = lax.stop_gradient(jnp.exp(batch.logp_old - batch.stored(f"logp_{behavior}")))
        return jnp.minimum(importance, cap) * value, {
            **metrics,
            "importance": importance,
            "importance_capped": (importance > cap).astype(jnp.float32),
        }

    return replace(objective, per_token=per_token)


def entropy_bonus(*, temperature: float = 1.0, reducer: Reducer = token_mean) -> Objective:
    """Minus the entropy of the policy at each position, to be scaled: `grpo() + 0.001 * entropy_bonus()`.

    (Williams and Peng, Connection Science 3, 1991; PPO, arXiv 1707.06347, equation 9.)
    """

    def per_token(logits: jax.Array, batch: TokenBatch) -> PerTokenResult:
        del batch
        value = entropy(logits / temperature)
        return -value, {"entropy_bonus": value}

    return Objective(per_token, reducer)
