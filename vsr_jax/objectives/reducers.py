"""How per-token values become one number.

A reducer maps the weights of a whole optimizer step to coefficients; the loss is the sum of coefficient times value.
The coefficients are fixed before anything is split, so that micro-batches, devices and padding cannot change a loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp

Reducer: TypeAlias = Callable[[jax.Array, jax.Array | None], jax.Array]
"""`(weight float32[..., tokens], sequence) -> coefficient float32[..., tokens]`; weights are 0 or larger.

`sequence` says which tokens belong together: None when every row is one sequence, else int32 of the weights' shape,
equal for tokens of the same sequence and at least 0 and smaller than the number of tokens (packed rows hold several).
"""


def sequence_sum(x: jax.Array, sequence: jax.Array | None = None) -> jax.Array:
    """At every token the sum of `x` over its sequence, in the shape of `x`; `sequence` as in `Reducer`."""
    if sequence is None:
        return jnp.broadcast_to(x.sum(-1, keepdims=True), x.shape)
    return jax.ops.segment_sum(x.reshape(-1), sequence.reshape(-1), num_segments=x.size)[sequence]


def _over_length(weight: jax.Array, sequence: jax.Array | None) -> jax.Array:
    """Weights divided by the number of weighted tokens of their sequence."""
    return weight / jnp.maximum(sequence_sum((weight != 0).astype(jnp.float32), sequence), 1)


def token_mean(weight: jax.Array, sequence: jax.Array | None = None) -> jax.Array:
    """Every token counts the same: sum of w l over sum of w, of all tokens of the step (arXiv 2503.14476, eq. 8)."""
    del sequence
    return weight / jnp.maximum(weight.sum(), 1e-9)


def sequence_mean(weight: jax.Array, sequence: jax.Array | None = None) -> jax.Array:
    """Every sequence counts the same: the mean over sequences of their token means (GRPO, arXiv 2402.03300, eq. 3).

    Weights other than 0 and 1 make it a weighted mean over sequences, each weighing the mean of its tokens' weights.
    """
    share = _over_length(weight, sequence)
    return share / jnp.maximum(share.sum(), 1e-9)


@dataclass(frozen=True)
class constant_length:
    """Divides by sequences times a fixed length, so that no sequence's weight depends on its own (arXiv 2503.20783).

    Sequences without a weighted token are not counted. A dataclass, so that equal lengths are equal reducers.

    Attributes:
      length: in tokens, usually the longest response allowed.
    """

    length: int

    def __call__(self, weight: jax.Array, sequence: jax.Array | None = None) -> jax.Array:
        """See `Reducer`."""
        sequences = jnp.round(_over_length((weight != 0).astype(jnp.float32), sequence).sum())
        return weight / (self.length * jnp.maximum(sequences, 1))
