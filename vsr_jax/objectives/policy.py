"""Policy-gradient terms."""

import jax
import jax.numpy as jnp

from vsr_jax.objectives.reducers import Reducer, token_mean
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.scoring import target_logprob


def grpo(
    *, clip_low: float = 0.2, clip_high: float = 0.28, temperature: float = 1.0, reducer: Reducer = token_mean
) -> Objective:
    """The clipped surrogate: minus min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), with r = pi / pi_old.

    PPO's pessimistic bound (arXiv 1707.06347, equation 7) with the two clip ranges of DAPO (arXiv 2503.14476, eq. 8).

    Args:
      clip_low, clip_high: how far the ratio may fall or rise before its gradient is cut.
      temperature: of the policy whose log-probability is scored; that of sampling, for a ratio of one at the start.
    """

    def per_token(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        log_ratio = target_logprob(logits, batch.target, temperature) - batch.logp_old
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
        loss = -jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
        metrics = {
            "ratio": ratio,
            "clipped_low": ((ratio < 1 - clip_low) & (batch.advantage < 0)).astype(jnp.float32),
            "clipped_high": ((ratio > 1 + clip_high) & (batch.advantage > 0)).astype(jnp.float32),
            "kl_old": jnp.expm1(-log_ratio) + log_ratio,
        }
        return loss, metrics

    return Objective(per_token, reducer)
