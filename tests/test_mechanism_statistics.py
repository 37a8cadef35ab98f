"""Token statistics of two policies against float64 brute force, and where a truncated JS misleads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vsr_jax.mechanism.statistics import js_exact, js_truncated, pair_statistics

LN2 = np.log(2)
pair = jax.jit(pair_statistics)


def softmax(x: np.ndarray) -> np.ndarray:
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * (np.log(p) - np.log(q)), 0).sum(-1)


def js(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    m = (p + q) / 2
    return (kl(p, m) + kl(q, m)) / 2


def js_of_tops(a: np.ndarray, b: np.ndarray, top: int) -> float:
    p, q = np.zeros_like(a), np.zeros_like(b)
    for out, logits in ((p, a), (q, b)):
        ids = np.argsort(-logits, kind="stable")[:top]
        out[ids] = softmax(logits[ids])
    return float(js(p, q))


def two(seed: int, n: int = 24, vocab: int = 300, scale: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits as float64 values that float32 holds exactly, so that brute force sees the same numbers."""
    rng = np.random.default_rng(seed)
    a = rng.normal(0, scale, (n, vocab)).astype(np.float32)
    b = (a + rng.normal(0, 1, (n, vocab)) * 10.0 ** -rng.integers(0, 4, (n, 1))).astype(np.float32)
    return a.astype(np.float64), b.astype(np.float64)


@pytest.mark.parametrize("seed", range(3))
def test_all_statistics_equal_float64_brute_force(seed: int) -> None:
    a, b = two(seed)
    if seed == 2:
        a[:, ::3] = b[:, ::3] = -np.inf  # vocabulary rows that pad
    got = jax.device_get(pair(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32)))
    p, q = softmax(a), softmax(b)
    first = b.argmax(-1)
    rows = np.arange(len(a))
    np.testing.assert_allclose(got.js, js(p, q), rtol=2e-4, atol=1e-12)
    np.testing.assert_allclose(got.kl_pq, kl(p, q), rtol=1e-3, atol=3e-7)
    np.testing.assert_allclose(got.kl_qp, kl(q, p), rtol=1e-3, atol=3e-7)
    np.testing.assert_allclose(got.entropy_p, -kl(p, np.ones_like(p)), rtol=1e-5)
    np.testing.assert_allclose(got.entropy_q, -kl(q, np.ones_like(q)), rtol=1e-5)
    np.testing.assert_allclose(got.prob, p[rows, first], rtol=1e-5)
    np.testing.assert_allclose(got.prob_q, q[rows, first], rtol=1e-5)
    np.testing.assert_array_equal(got.first_p, a.argmax(-1))
    np.testing.assert_array_equal(got.first_q, first)
    np.testing.assert_array_equal(got.rank, 1 + (a > a[rows, first][:, None]).sum(-1))
    tops = [np.argsort(-x, axis=-1)[:, :10] for x in (a, b)]
    np.testing.assert_array_equal(got.overlap, [len(set(x) & set(y)) for x, y in zip(*tops, strict=True)])
    np.testing.assert_allclose(
        got.js_top, [js_of_tops(x, y, 64) for x, y in zip(a, b, strict=True)], rtol=1e-3, atol=3e-7
    )
    order = np.argsort(-a, axis=-1)[:, :64]
    own = [softmax(a[i, order[i]])[order[i] == first[i]].sum() for i in rows]
    np.testing.assert_allclose(got.prob_top, own, rtol=1e-5)
    assert (np.asarray(got.js) <= LN2 + 1e-6).all()


def test_js_stays_exact_where_policies_hardly_differ() -> None:
    """A difference of float32 entropies has noise of 1e-7; divergences far below that must come out right."""
    rng = np.random.default_rng(0)
    a = rng.integers(-64, 64, (8, 500)) / 16.0
    b = a + rng.integers(-2, 3, a.shape) * 2.0**-14  # exact in float32
    true = js(softmax(a), softmax(b))
    assert true.max() < 1e-8
    np.testing.assert_allclose(js_exact(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32)), true, rtol=2e-2)


def test_excluded_tokens_give_finite_numbers_and_gradients() -> None:
    p, q = jnp.array([[0.0, -jnp.inf, -jnp.inf]]), jnp.array([[0.0, 0.0, -jnp.inf]])
    got = pair(p, q)
    assert got.js[0] == pytest.approx(0.215762, abs=1e-6)  # p = (1, 0) against q = (1/2, 1/2)
    assert got.js_top[0] == pytest.approx(0.215762, abs=1e-6)
    assert got.kl_pq[0] == pytest.approx(LN2, abs=1e-6)
    assert np.isposinf(got.kl_qp[0])  # q allows what p excludes: infinite in truth
    assert got.entropy_q[0] == pytest.approx(LN2, abs=1e-6)
    assert got.overlap[0] == 1
    both = pair(q, q)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(both))
    assert both.js[0] == 0
    assert js_exact(jnp.array([0.0, -jnp.inf]), jnp.array([-jnp.inf, 0.0])) == pytest.approx(LN2)
    assert js_truncated(jnp.array([0.0, -jnp.inf]), jnp.array([-jnp.inf, 0.0])) == pytest.approx(LN2)


def test_directions_are_those_of_the_formulas() -> None:
    p, q = jnp.log(jnp.array([[0.25, 0.75]])), jnp.log(jnp.array([[0.5, 0.5]]))
    got = pair(p, q)
    assert got.kl_qp[0] == pytest.approx(0.143841, abs=1e-6)
    assert got.kl_pq[0] == pytest.approx(0.130812, abs=1e-6)
    assert got.js[0] == pytest.approx(float(pair(q, p).js[0]), rel=1e-6)


def test_truncated_supports_mislead_both_ways() -> None:
    vocab = 4096
    flat = np.zeros(vocab)
    nudge = lambda ids: flat + np.isin(np.arange(vocab), ids) * 1e-3  # noqa: E731
    a, b = nudge(np.arange(64)), nudge(np.arange(64, 128))
    assert js(softmax(a), softmax(b)) < 1e-7
    got = pair(jnp.asarray(a[None], jnp.float32), jnp.asarray(b[None], jnp.float32))
    assert got.js_top[0] == pytest.approx(LN2, abs=1e-5)  # disjoint tops: the largest value there is
    assert got.js[0] < 1e-7

    # Equal tops, and all that differs lies below them.
    a, b = flat.copy(), flat.copy()
    a[:64] = b[:64] = 1.0
    a[64:2000] = b[2000:] = -4.0
    got = pair(jnp.asarray(a[None], jnp.float32), jnp.asarray(b[None], jnp.float32))
    assert got.js_top[0] == pytest.approx(0, abs=1e-6)
    assert got.js[0] == pytest.approx(float(js(softmax(a), softmax(b))), rel=1e-4)
    assert got.js[0] > 0.3


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 10.0, 40.0]))
def test_js_is_symmetric_bounded_and_zero_on_itself(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = (jnp.asarray(rng.normal(0, scale, (4, 64)), jnp.float32) for _ in range(2))
    one, other = js_exact(a, b), js_exact(b, a)
    np.testing.assert_allclose(one, other, rtol=1e-5)
    assert (one >= 0).all()
    assert (one <= LN2 + 1e-6).all()
    assert (js_exact(a, a) == 0).all()
