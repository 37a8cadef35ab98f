"""How per-token values become one number.

A reducer maps the weights of a whole optimizer step to coefficients; the loss is the sum of coefficient times value.
The coefficients are fixed before anything is split, so that micro-batches, devices and padding cannot change a loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp

Reducer: TypeAlias = Callable[[jax.Array], jax.Array]
"""`weight float32[sequences, tokens] -> coefficient float32[sequences, tokens]`."""


def token_mean(weight: jax.Array) -> jax.Array:
    """Every token counts the same: the mean over all tokens of the step (DAPO, arXiv 2503.14476, equation 8)."""
    return weight / jnp.maximum(weight.sum(), 1e-9)


def sequence_mean(weight: jax.Array) -> jax.Array:
    """Every sequence counts the same: the mean over sequences of their token means (GRPO, arXiv 2402.03300, eq. 3)."""
    tokens = weight.sum(-1, keepdims=True)
    return weight / jnp.maximum(tokens, 1e-9) / jnp.maximum((tokens > 0).sum(), 1)


@dataclass(frozen=True)
class constant_length:
    """Divides by sequences times a fixed length, so that no sequence's weight depends on its own (arXiv 2503.20783).

    A dataclass, so that equal lengths are equal reducers.
    """

    length: int

    def __call__(self, weight: jax.Array) -> jax.Array:
        """See `Reducer`."""
        return weight / (self.length * jnp.maximum((weight.sum(-1) > 0).sum(), 1))
