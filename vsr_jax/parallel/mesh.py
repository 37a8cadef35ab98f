"""Device meshes: which chips hold which part of a batch and of the weights.

A mesh always has the four axes of `AXES`, most of them of size 1, so that sharding rules may name any of them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.experimental import mesh_utils
from jax.sharding import Mesh

from vsr_jax.errors import UserError

AXES = ("data", "fsdp", "sequence", "tensor")
"""Copies of the weights; rows of a batch and slices of the weights; positions of a row; slices of each matrix product.

From the axis that communicates least to the one that communicates most, which gets the nearest neighbours.
"""


def parse_mesh(text: str) -> dict[str, int]:
    """Reads `fsdp=16,tensor=2` into sizes by axis. One size may be -1, for the devices that are left.

    Raises:
      UserError: an unknown or repeated axis, or a size that is not a positive integer or -1.
    """
    sizes: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if name not in AXES:
            raise UserError(f"mesh {text!r}: unknown axis {name!r}; axes are {', '.join(AXES)}, as in fsdp=16,tensor=2")
        if name in sizes:
            raise UserError(f"mesh {text!r}: axis {name} is given twice")
        try:
            sizes[name] = int(value)
        except ValueError:
            raise UserError(f"mesh {text!r}: the size of {name} must be an integer, found {value!r}") from None
    return sizes


def mesh_sizes(sizes: Mapping[str, int], devices: int) -> tuple[int, ...]:
    """Sizes of all of `AXES` for a number of devices. Axes that are not given have size 1.

    Raises:
      UserError: the sizes do not multiply to the number of devices.
    """
    shape = [sizes.get(axis, 1) for axis in AXES]
    if any(size < 1 and size != -1 for size in shape) or shape.count(-1) > 1:
        raise UserError(f"mesh {format_mesh(sizes)}: sizes must be positive, and one may be -1")
    if -1 in shape:
        known = -math.prod(shape)
        if devices % known:
            raise UserError(f"mesh {format_mesh(sizes)}: {devices} devices do not divide by {known}")
        shape[shape.index(-1)] = devices // known
    if math.prod(shape) != devices:
        raise UserError(f"mesh {format_mesh(sizes)} asks for {math.prod(shape)} devices, there are {devices}")
    return tuple(shape)


def format_mesh(sizes: Mapping[str, int]) -> str:
    """`fsdp=16,tensor=2`; axes of size 1 are left out."""
    return ",".join(f"{axis}={sizes[axis]}" for axis in AXES if sizes.get(axis, 1) != 1) or "data=1"


def make_mesh(sizes: Mapping[str, int], devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh over the devices (all of them when None), laid out along the chips' physical links.

    Several slices are joined along `data`, the axis that needs the slow network between them least.

    Raises:
      UserError: the sizes do not fit the devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    shape = mesh_sizes(sizes, len(devices))
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    elif shape[0] % slices:
        raise UserError(f"{slices} slices are joined along data, whose size {shape[0]} must be a multiple of them")
    else:
        inner = (shape[0] // slices, *shape[1:])
        outer = (slices, *(1 for _ in shape[1:]))
        grid = mesh_utils.create_hybrid_device_mesh(inner, outer, devices, allow_split_physical_axes=True)
    return Mesh(grid, AXES)
