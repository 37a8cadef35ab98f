"""Rotary position embedding in the half-split convention of Hugging Face, with YaRN."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from vsr_jax.model.config import ModelConfig


def inverse_frequencies(config: ModelConfig) -> tuple[np.ndarray, float]:
    """Angles per position, float32[head_dim / 2], and the factor on cosine and sine (1 without YaRN)."""
    dim = config.head_dim
    exponent = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    base = (1.0 / np.float32(config.rope_theta) ** exponent).astype(np.float32)
    yarn = config.yarn
    if yarn is None:
        return base, 1.0

    def rotations_at(rotations: float) -> float:
        """The (fractional) dimension pair that turns `rotations` times over the original context."""
        return (
            dim * math.log(yarn.original_max_position / (rotations * 2 * math.pi)) / (2 * math.log(config.rope_theta))
        )

    low = max(math.floor(rotations_at(yarn.beta_fast)), 0)
    high = min(math.ceil(rotations_at(yarn.beta_slow)), dim - 1)
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - low) / max(high - low, 1e-3), 0, 1)
    blended = base * (1 - ramp) + base / yarn.factor * ramp
    factor = yarn.attention_factor
    if factor is None:
        factor = 1.0 if yarn.factor <= 1 else 0.1 * math.log(yarn.factor) + 1.0
    return blended.astype(np.float32), float(factor)


def rope_table(config: ModelConfig, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine, each float32[..., head_dim / 2], for integer positions of any shape."""
    frequencies, factor = inverse_frequencies(config)
    angles = positions[..., None].astype(jnp.float32) * frequencies
    return jnp.cos(angles) * factor, jnp.sin(angles) * factor


def apply_rope(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotates `x[..., heads, head_dim]` by per-position tables `[..., head_dim / 2]`, in float32."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[..., None, :], sin[..., None, :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
