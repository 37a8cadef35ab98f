"""How two next-token distributions differ: the statistics of one chunk of tokens. All in nats, over the last axis.

p is the policy that is compared with (Base, say) and q the other one. Vocabulary rows that both exclude (logits of
-inf) add nothing to any of them.
"""

from typing import cast

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax
from jax.scipy.special import xlog1py, xlogy

from vsr_jax.objectives.statistics import entropy, kl_divergence

TOP = 64
"""Likeliest tokens of each policy that the truncated JS divergence looks at, as in the paper."""
OVERLAP = 10
"""Likeliest tokens of each policy that are compared as sets."""


@struct.dataclass
class PairStatistics:
    """Statistics of p against q, all of shape [...], one entry a token.

    Attributes:
      js: float32, Jensen-Shannon divergence over the whole vocabulary, at most ln 2.
      js_top: float32, the same between the renormalised top-`TOP` sets of each, zero-padded onto their union.
      kl_pq, kl_qp: float32, KL(p || q) and KL(q || p); infinite where the second excludes what the first allows.
      entropy_p, entropy_q: float32.
      first_p, first_q: int32, likeliest token of each; the smallest id among ties.
      rank: int32, place of q's first choice under p, 1 for the likeliest; ties share the better place.
      prob: float32, probability of q's first choice under p; prob_top the same within p's own top `TOP`, zero
        outside; prob_q the same under q.
      overlap: int32, common tokens of the two top-`OVERLAP` sets.
    """

    js: jax.Array
    js_top: jax.Array
    kl_pq: jax.Array
    kl_qp: jax.Array
    entropy_p: jax.Array
    entropy_q: jax.Array
    first_p: jax.Array
    first_q: jax.Array
    rank: jax.Array
    prob: jax.Array
    prob_top: jax.Array
    prob_q: jax.Array
    overlap: jax.Array


def js_exact(logits_p: jax.Array, logits_q: jax.Array) -> jax.Array:
    """JS divergence float32[...] of two distributions given as logits [..., V], exact to small values.

    With m = (p + q) / 2 and d = (q - p) / (q + p) it is half the sum of m ((1 + d) ln(1 + d) + (1 - d) ln(1 - d)).
    No term is negative and d comes from the log-ratio, so that nothing cancels: a difference of entropies in float32
    has noise of 1e-7, as large as the divergence itself at most interior positions.
    """
    logp, logq = jax.nn.log_softmax(logits_p, axis=-1), jax.nn.log_softmax(logits_q, axis=-1)
    possible = jnp.isfinite(logp) | jnp.isfinite(logq)
    difference = jnp.tanh(jnp.where(possible, logq - logp, 0.0) / 2)
    return (_spread(difference) * (jnp.exp(logp) + jnp.exp(logq))).sum(-1) / 4


def _spread(d: jax.Array) -> jax.Array:
    """(1 + d) ln(1 + d) + (1 - d) ln(1 - d) for d in [-1, 1]; its power series where the logarithms would cancel."""
    square = d * d
    series = square * (1 + square * (1 / 6 + square * (1 / 15 + square * (1 / 28 + square / 45))))
    return jnp.where(jnp.abs(d) < 0.3, series, xlog1py(1 + d, d) + xlog1py(1 - d, -d))


def js_truncated(logits_p: jax.Array, logits_q: jax.Array, top: int = TOP) -> jax.Array:
    """JS divergence between the renormalised `top` likeliest tokens of each, zero-padded onto their union.

    It can mislead both ways: disjoint tops of two flat distributions give ln 2 however close these are, and what
    differs below the tops is not seen.
    """
    return _js_of_tops(_top(logits_p, top), _top(logits_q, top))


def _js_of_tops(top_p: tuple[jax.Array, jax.Array], top_q: tuple[jax.Array, jax.Array]) -> jax.Array:
    (p, ids_p), (q, ids_q) = top_p, top_q
    same = ids_p[..., :, None] == ids_q[..., None, :]
    q_on_p = jnp.where(same, q[..., None, :], 0.0).sum(-1)
    q_alone = jnp.where(same.any(-2), 0.0, q)
    return (_js_term(p, q_on_p).sum(-1) + _js_term(jnp.zeros_like(q), q_alone).sum(-1)) / 2


def _top(logits: jax.Array, top: int) -> tuple[jax.Array, jax.Array]:
    """The likeliest tokens, in order: probabilities that add up to 1, and ids."""
    values, ids = lax.top_k(logits, min(top, logits.shape[-1]))
    return jax.nn.softmax(values, axis=-1), ids


def _js_term(p: jax.Array, q: jax.Array) -> jax.Array:
    middle = (p + q) / 2
    safe = jnp.where(middle > 0, middle, 1.0)
    return xlogy(p, p / safe) + xlogy(q, q / safe)


def pair_statistics(logits_p: jax.Array, logits_q: jax.Array) -> PairStatistics:
    """All statistics of one chunk, from float32[n, V] logits of the same tokens."""
    first_p, first_q = (jnp.argmax(x, axis=-1).astype(jnp.int32) for x in (logits_p, logits_q))
    at = lambda x, ids: jnp.take_along_axis(x, ids[..., None], axis=-1)[..., 0]  # noqa: E731
    chosen = at(logits_p, first_q)
    top_p, top_q = _top(logits_p, TOP), _top(logits_q, TOP)
    # A place in the top ten that only an excluded token fills is no choice of the policy.
    (held_p, ids_p), (held_q, ids_q) = ((x[..., :OVERLAP] > 0, ids[..., :OVERLAP]) for x, ids in (top_p, top_q))
    both = (ids_p[..., :, None] == ids_q[..., None, :]) & held_p[..., :, None] & held_q[..., None, :]
    return cast(
        PairStatistics,
        PairStatistics(
            js=js_exact(logits_p, logits_q),
            js_top=_js_of_tops(top_p, top_q),
            kl_pq=kl_divergence(logits_p, logits_q),
            kl_qp=kl_divergence(logits_q, logits_p),
            entropy_p=entropy(logits_p),
            entropy_q=entropy(logits_q),
            first_p=first_p,
            first_q=first_q,
            rank=1 + (logits_p > chosen[..., None]).sum(-1, dtype=jnp.int32),
            prob=jnp.exp(chosen - jax.nn.logsumexp(logits_p, axis=-1)),
            prob_top=jnp.where(top_p[1] == first_q[..., None], top_p[0], 0.0).sum(-1),
            prob_q=jnp.exp(at(logits_q, first_q) - jax.nn.logsumexp(logits_q, axis=-1)),
            overlap=both.sum((-1, -2), dtype=jnp.int32),
        ),
    )
