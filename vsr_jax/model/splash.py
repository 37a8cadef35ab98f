"""Causal self-attention on TPU by JAX's splash kernel, which never writes the scores to memory.

Tiles above the diagonal are skipped; the backward pass recomputes the scores tile by tile.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from vsr_jax.model.placement import ROWS

LANES = 128
"""The kernel's head size and tile length are multiples of it."""


def supports(q: jax.Array) -> bool:
    """Whether the kernel takes queries [B, T, heads, head_dim] of this shape."""
    return q.shape[1] % LANES == 0 and q.shape[3] % LANES == 0


def _tile(length: int, largest: int = 512) -> int:
    """The largest tile that divides the row."""
    return max(size for size in range(LANES, min(largest, length) + 1, LANES) if length % size == 0)


def splash_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array | None, *, interpret: bool = False
) -> jax.Array:
    """As `attention.self_attention`, in the dtype of `v`; rows and heads stay apart on the current mesh.

    Args:
      interpret: run the kernel step by step on any device, for tests.
    """
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    rows = tuple(a for a in ROWS if sizes.get(a, 1) > 1)
    heads = "tensor" if sizes.get("tensor", 1) > 1 and k.shape[2] % sizes["tensor"] == 0 else None
    batch = 1
    for axis in rows:
        batch *= sizes[axis]
    rows = rows if q.shape[0] % batch == 0 else ()
    if segments is None:
        segments = jnp.ones(q.shape[:2], jnp.int32)
    local = partial(_local, interpret=interpret)
    if not any(size > 1 for size in sizes.values()):
        return local(q, k, v, segments)
    spec = PartitionSpec(rows or None, None, heads)
    run = jax.shard_map(
        local, in_specs=(spec, spec, spec, PartitionSpec(rows or None)), out_specs=spec, check_vma=False
    )
    return run(q, k, v, segments)


def _local(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array, *, interpret: bool) -> jax.Array:
    # Here and not above: no other way of attention needs Pallas, which takes a moment to import.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    length, tile = q.shape[1], _tile(q.shape[1])
    sizes = kernel.BlockSizes(
        **dict.fromkeys(("block_q", "block_kv", "block_kv_compute"), tile),
        **dict.fromkeys(("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"), tile),
        use_fused_bwd_kernel=True,
    )
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * q.shape[2])
    attend = kernel.make_splash_mha_single_device(mask, block_sizes=sizes, interpret=interpret)
    first = partial(jnp.swapaxes, axis1=1, axis2=2)

    def row(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array) -> Any:
        return attend(q, k, v, kernel.SegmentIds(segments, segments))

    scaled = q * jnp.asarray(q.shape[-1] ** -0.5, q.dtype)
    return first(jax.vmap(row)(first(scaled), first(k), first(v), segments)).astype(v.dtype)
