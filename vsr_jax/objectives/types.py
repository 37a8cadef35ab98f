"""An objective is a pure function from a chunk of logits and its tokens to per-token values, plus a reducer.

A researcher's own function has the same standing as the ones shipped here:

    def my_loss(logits, batch):                      # logits float32[n, V], batch: TokenBatch of [n] arrays
        logp = target_logprob(logits, batch.target)
        return -batch.advantage * logp, {"logp": logp}

    objective = Objective(my_loss) + 0.01 * kl("k2")
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import jax
from flax import struct

from vsr_jax.errors import UserError
from vsr_jax.objectives.reducers import Reducer, token_mean


@struct.dataclass
class TokenBatch:
    """What a loss may know of each token. All arrays share one leading shape; inside a chunk it is [n].

    Where `weight` is 0 a loss sees zeros in every other float array, so that it cannot produce an infinity there.

    Attributes:
      target: int32, the token that the logits at this position predict.
      weight: float32, 1 where the token counts, 0 for forced tokens and padding; other values weight labels.
      advantage: float32, of the response the token belongs to, or of the token itself.
      logp_old: float32, log-probability under the policy that produced the token.
      logp_ref: float32, under the frozen reference; zero where there is none.
      position: int32, index of the token within its response, from 0.
      extra: further arrays by name, for losses of one's own; [n, k] is as good as [n]. Batches of rollouts hold
        `logp_raw` and `logp_warped`, the sampler's log-probabilities before and after temperature and truncation.
      others: float32[n, V], logits of further models at the same tokens, by the name given to the update. Only
        inside a chunk; no gradient flows into them.
    """

    target: jax.Array
    weight: jax.Array
    advantage: jax.Array
    logp_old: jax.Array
    logp_ref: jax.Array
    position: jax.Array
    extra: dict[str, jax.Array] = field(default_factory=dict)
    others: dict[str, jax.Array] = field(default_factory=dict)

    def stored(self, name: str) -> jax.Array:
        """`extra[name]`. Raises UserError when the batch does not carry it."""
        if name not in self.extra:
            raise UserError(f"the loss reads extra[{name!r}] of the batch, which holds {_names(self.extra)}")
        return self.extra[name]

    def logits_of(self, model: str) -> jax.Array:
        """`others[model]`. Raises UserError when the update was not given that model."""
        if model not in self.others:
            raise UserError(f"the loss reads the logits of model {model!r}; the update was given {_names(self.others)}")
        return self.others[model]


def _names(arrays: dict[str, jax.Array]) -> str:
    return ", ".join(sorted(arrays)) or "none"


PerToken: TypeAlias = Callable[[jax.Array, TokenBatch], tuple[jax.Array, dict[str, jax.Array]]]
"""`(logits float32[n, V], TokenBatch[n]) -> (loss float32[n], metrics {name: float32[n]})`."""


@dataclass(frozen=True)
class Prepare:
    """What a loss must know of the current policy across tokens (a sequence's ratio, a quantile of the batch).

    It costs a forward pass over the whole step before anything is differentiated, and carries no gradient.

    Attributes:
      measure: `(logits float32[n, V], TokenBatch[n]) -> pytree of [n, ...]`, the per-token part.
      gather: `(measured, TokenBatch, sequence) -> {name: array}` over the whole step; the arrays have the leading
        shape of the batch and appear in `TokenBatch.extra`. `sequence` as in `Reducer`.
    """

    measure: Callable[[jax.Array, TokenBatch], Any]
    gather: Callable[[Any, TokenBatch, jax.Array | None], dict[str, jax.Array]]


@dataclass(frozen=True)
class Objective:
    """A per-token loss with its reducer. Supports `a + b` and `number * a`.

    Attributes:
      per_token: see `PerToken`; the reducer weights its values, so it need not mask them.
      reducer: turns weights into coefficients that sum the values to the loss.
      prepare: run once a step, before the gradient; see `Prepare`.
    """

    per_token: PerToken
    reducer: Reducer = token_mean
    prepare: tuple[Prepare, ...] = ()

    def __mul__(self, scale: float) -> "Objective":
        def scaled(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
            value, metrics = self.per_token(logits, batch)
            return scale * value, metrics

        return replace(self, per_token=scaled)

    __rmul__ = __mul__

    def __add__(self, other: "Objective") -> "Objective":
        return combine(self, other)


def combine(*terms: Objective) -> Objective:
    """The sum of several objectives, differentiated once. Metrics are merged by name; a name given twice is an error.

    Raises:
      ValueError: no terms, terms with different reducers, or metrics of the same name.
    """
    if not terms:
        raise ValueError("combine needs at least one objective")
    if any(term.reducer != terms[0].reducer for term in terms):
        raise ValueError("combined objectives must share one reducer; give each the same reducer=")

    def total(logits: jax.Array, batch: TokenBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        value, metrics = terms[0].per_token(logits, batch)
        for term in terms[1:]:
            more, named = term.per_token(logits, batch)
            if clash := metrics.keys() & named.keys():
                raise ValueError(f"two objectives report a metric named {min(clash)!r}")
            value, metrics = value + more, {**metrics, **named}
        return value, metrics

    return Objective(total, terms[0].reducer, tuple(part for term in terms for part in term.prepare))
