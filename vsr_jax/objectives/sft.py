"""Supervised fine-tuning."""

import jax

from vsr_jax.objectives.reducers import Reducer, token_mean
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.scoring import target_logprob


def cross_entropy(*, reducer: Reducer = token_mean) -> Objective:
    """Minus the log-probability of the target, in nats.

    `batch.weight` masks prompts and padding with 0 and weights labels otherwise: the loss is the weighted mean, sum of
    w l over sum of w, so that doubling every weight changes nothing.
    """

    def per_token(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        loss = -target_logprob(logits, batch.target)
        return loss, {"cross_entropy": loss}

    return Objective(per_token, reducer)
