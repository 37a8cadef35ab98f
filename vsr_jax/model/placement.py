"""Where activations lie on a mesh: rows of a batch stay apart, so that the compiler gathers weights, not activations.

A no-op outside `jax.set_mesh(mesh)`. Without these constraints the compiler may let a sharded weight decide, compute
every row on every device and add up partial products.
"""

import math
from typing import Any

import jax
from jax import lax
from jax.sharding import PartitionSpec

ROWS = ("data", "fsdp")
"""Mesh axes that split the rows of a batch, as in the default rules."""


def _row_axes() -> tuple[tuple[str, ...], int]:
    """The axes of the current mesh that split rows, and into how many pieces."""
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    axes = tuple(axis for axis in ROWS if sizes.get(axis, 1) > 1)
    return axes, math.prod(sizes[axis] for axis in axes)


def row_shards() -> int:
    """How many pieces the current mesh splits rows into; 1 where there is no mesh."""
    return _row_axes()[1]


def by_rows(x: jax.Array, axis: int = 0) -> jax.Array:
    """Keeps dimension `axis` of an array split over the row axes of the current mesh, where it divides."""
    axes, shards = _row_axes()
    if shards == 1 or x.ndim <= axis or x.shape[axis] % shards:
        return x
    entries: list[Any] = [PartitionSpec.UNCONSTRAINED] * x.ndim
    entries[axis] = axes
    return lax.with_sharding_constraint(x, PartitionSpec(*entries))
