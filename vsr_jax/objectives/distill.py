"""On-policy distillation from a teacher: a model given to the update, or numbers stored beside the rollouts.

Full-vocabulary distillation is `kl.full_kl(other="teacher")` and `kl.full_jsd`. With S the student, T the teacher and
S_old the student that sampled, the terms here see one token, or k tokens, of each position.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from vsr_jax.objectives.policy import clipped_surrogate
from vsr_jax.objectives.reducers import Reducer, token_mean
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.scoring import target_logprob

Measure = Callable[[jax.Array, TokenBatch], dict[str, jax.Array]]


def distill_sampled(
    *,
    teacher: str | None = "teacher",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    temperature: float = 1.0,
    reducer: Reducer = token_mean,
) -> Objective:
    """Policy gradient with A = log T(y) - log S_old(y) of the sampled token y: minus a k1 estimate as the reward.

    On-policy its expected gradient is that of KL(S || T) at each position (Lu and Thinking Machines Lab, "On-policy
    distillation", 2025). PPO-clipped on r = S / S_old.

    Args:
      teacher: name of a model given to the update; None reads log T from `extra["logp_teacher"]`.
      clip_low, clip_high: as in `grpo`.
      temperature: of both policies.
    """

    def per_token(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        if teacher is None:
            logp_teacher = batch.stored("logp_teacher")
        else:
            logp_teacher = target_logprob(batch.logits_of(teacher), batch.target, temperature)
        advantage = logp_teacher - batch.logp_old
        ratio = jnp.exp(target_logprob(logits, batch.target, temperature) - batch.logp_old)
        loss = clipped_surrogate(ratio, advantage, clip_low, clip_high)
        return loss, {"distill_loss": loss, "teacher_k1": -advantage}

    return Objective(per_token, reducer)


def top_k(k: int, *, temperature: float = 1.0) -> Measure:
    """Statistic of the student that sampled: its k likeliest tokens, for `extra`.

    Returns:
      `(logits, batch) -> {"top_ids": int32[n, k], "top_logp_old": float32[n, k]}`.
    """

    def measure(logits: jax.Array, batch: TokenBatch) -> dict[str, jax.Array]:
        del batch
        logp, ids = lax.top_k(jax.nn.log_softmax(logits / temperature, axis=-1), k)
        return {"top_ids": ids, "top_logp_old": logp}

    return measure


def teacher_at_top_k(*, temperature: float = 1.0) -> Measure:
    """Statistic of the teacher at the student's tokens `extra["top_ids"]`: `{"top_logp_teacher": float32[n, k]}`."""

    def measure(logits: jax.Array, batch: TokenBatch) -> dict[str, jax.Array]:
        return {"top_logp_teacher": _logp_at(logits / temperature, batch.stored("top_ids"))}

    return measure


def distill_top_k(
    k: int = 16,
    *,
    teacher: str | None = "teacher",
    stored: bool = False,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    temperature: float = 1.0,
    reducer: Reducer = token_mean,
) -> Objective:
    """Policy gradient over the student's k likeliest tokens X of each position, whichever of them was sampled.

    With w(x) = S_old(x) / sum of S_old over X and A(x) = w(x) (log T(x) - log S_old(x)), both without gradient, minus
    the sum over X of min(r A, clip(r) A), r(x) = S(x) / S_old(x). With k the whole vocabulary and S = S_old its
    gradient is exactly that of KL(S || T); with fewer it leaves out the rest of the student's mass.

    Args:
      k: tokens of each position; 16 in the study.
      teacher: name of a model given to the update; None reads `extra["top_logp_teacher"]` and needs `stored`.
      stored: take X and S_old from `extra["top_ids"]` and `extra["top_logp_old"]` (see `top_k`). Without it both are
        the current student's, which is right for one update a rollout and pins r to 1 in any further one.
      clip_low, clip_high: as in `grpo`.
      temperature: of both policies.
    """
    if teacher is None and not stored:
        raise ValueError("teacher=None reads the teacher at stored tokens; it needs stored=True")
    measure = top_k(k, temperature=temperature)

    def per_token(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        old = None if stored else measure(lax.stop_gradient(logits), batch)
        ids = batch.stored("top_ids") if old is None else old["top_ids"]
        logp_old = batch.stored("top_logp_old") if old is None else old["top_logp_old"]
        if teacher is None:
            logp_teacher = batch.stored("top_logp_teacher")
        else:
            logp_teacher = _logp_at(batch.logits_of(teacher) / temperature, ids)
        share = jax.nn.softmax(logp_old, axis=-1)
        advantage = share * (logp_teacher - logp_old)
        ratio = jnp.exp(_logp_at(logits / temperature, ids) - logp_old)
        loss = clipped_surrogate(ratio, advantage, clip_low, clip_high).sum(-1)
        return loss, {
            "distill_loss": loss,
            "top_k_kl": -advantage.sum(-1),
            "top_k_mass": jnp.exp(logp_old).sum(-1),
        }

    return Objective(per_token, reducer)


def distill_stored(*, temperature: float = 1.0, reducer: Reducer = token_mean) -> Objective:
    """KL(T || S) where only the teacher's likeliest tokens were stored: those apart, all others as one.

    The sum of T(x) log(T(x) / S(x)) over the stored tokens, plus T(rest) log(T(rest) / S(rest)). Merging tokens never
    raises a divergence, so this is a lower bound of `full_kl("other||policy")`, and equal to it when all are stored.

    Reads `extra["teacher_ids"]` int32[n, k], distinct within a position, and `extra["teacher_logp"]` float32[n, k].

    Args:
      temperature: of the student; the stored numbers must have been taken at the same one.
    """

    def per_token(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        ids, logp_teacher = batch.stored("teacher_ids"), batch.stored("teacher_logp")
        logits = logits / temperature
        logp = _logp_at(logits, ids)
        prob = jnp.exp(logp_teacher)
        value = jnp.where(prob > 0, prob * (logp_teacher - logp), 0.0).sum(-1)
        rest = 1 - prob.sum(-1)
        some = rest > 1e-6  # below float32's rounding of a sum of probabilities nothing is left over
        listed = jnp.zeros(logits.shape, bool).at[jnp.arange(len(ids))[:, None], ids].set(True)
        unlisted = jnp.where(listed & some[:, None], -jnp.inf, logits)
        logp_rest = jax.nn.logsumexp(unlisted, axis=-1) - jax.nn.logsumexp(logits, axis=-1)
        value = value + jnp.where(some, rest * (jnp.log(jnp.where(some, rest, 1.0)) - logp_rest), 0.0)
        return value, {"kl_stored_teacher_to_policy": value, "teacher_rest": jnp.maximum(rest, 0)}

    return Objective(per_token, reducer)


def _logp_at(logits: jax.Array, ids: jax.Array) -> jax.Array:
    """Log-probabilities float32[n, k] of int32[n, k] tokens."""
    return jnp.take_along_axis(logits, ids, axis=-1) - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
