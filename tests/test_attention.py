"""The ways of attention agree: splash kernel (step by step on the CPU) against plain XLA, and which one is lowered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vsr_jax.model import attention
from vsr_jax.model.attention import portable_attention, self_attention
from vsr_jax.model.splash import splash_attention, supports


def inputs(heads: int, kv_heads: int, length: int = 256, size: int = 128, dtype=jnp.float32):
    """Queries, keys and values of one row of two texts and padding, and a cotangent of the output."""
    keys = jax.random.split(jax.random.key(0), 4)
    shape = lambda n: (1, length, n, size)  # noqa: E731
    q, k, v, out = (
        jax.random.normal(key, shape(n), dtype) for key, n in zip(keys, (heads, kv_heads, kv_heads, heads), strict=True)
    )
    ends = [length // 3, length - 10]
    return (q, k, v), jnp.asarray(np.digitize(np.arange(length), ends) + 1)[None] % 3, out


@pytest.mark.parametrize(("heads", "kv_heads", "packed"), [(4, 2, True), (2, 2, False)])
def test_splash_gives_the_values_and_gradients_of_plain_xla(heads, kv_heads, packed) -> None:
    arrays, segments, out = inputs(heads, kv_heads)
    segments = segments if packed else None

    def both(attend):
        value, back = jax.vjp(lambda q, k, v: attend(q, k, v, segments), *arrays)
        return value, *back(out)

    expected = both(portable_attention)
    for found, right in zip(both(lambda *a: splash_attention(*a, interpret=True)), expected, strict=True):
        np.testing.assert_allclose(found, right, atol=2e-6 * float(jnp.abs(right).max()))


def test_what_a_token_does_not_see_does_not_reach_it() -> None:
    (q, k, v), segments, _ = inputs(1, 1)
    late = jnp.arange(256)[None, :, None, None] >= 100  # the second text begins at 85
    other = splash_attention(q, k + late, v + late, segments, interpret=True)
    here = splash_attention(q, k, v, segments, interpret=True)
    np.testing.assert_array_equal(other[:, :100], here[:, :100])
    early = jnp.arange(256)[None, :, None, None] < 85
    np.testing.assert_array_equal(
        splash_attention(q, k + early, v + early, segments, interpret=True)[:, 85:246], here[:, 85:246]
    )


def lowered(platform: str, *args) -> str:
    return jax.jit(self_attention).trace(*args).lower(lowering_platforms=(platform,)).as_text()


def test_the_platform_that_a_program_is_lowered_for_decides() -> None:
    (q, k, v), segments, _ = inputs(4, 2)
    assert supports(q)
    assert "tpu_custom_call" in lowered("tpu", q, k, v, segments)
    assert "custom_call" not in lowered("cpu", q, k, v, segments)
    # Heads of 64 and rows that fill no tile take the portable way on TPUs as well.
    for shape in ((1, 256, 4, 64), (1, 250, 4, 128)):
        x = jnp.zeros(shape)
        assert not supports(x)
        assert "tpu_custom_call" not in lowered("tpu", x, x, x, None)


def test_cudnn_takes_half_precision_rows_of_one_text_on_gpus(monkeypatch) -> None:
    half, whole = jnp.zeros((1, 8, 2, 64), jnp.bfloat16), jnp.zeros((1, 8, 2, 64))
    assert not attention._cudnn_supports(half, None)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert attention._cudnn_supports(half, None)
    assert not attention._cudnn_supports(whole, None)
    assert not attention._cudnn_supports(half, jnp.ones((1, 8), jnp.int32))
    assert not attention._cudnn_supports(jnp.zeros((1, 8, 2, 256), jnp.bfloat16), None)
