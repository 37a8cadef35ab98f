"""Sharding as data: rules map the logical axes of the parameter table, and of batches, to mesh axes.

    placed = state_shardings(config, state, mesh)
    update = keep_placed(update, placed)        # the same function as on one device, compiled once
    state = jax.device_put(state, placed)
    state, metrics = update(state, jax.device_put(batch, batch_shardings(batch, mesh)))

A dimension is split over the longest leading part of its mesh axes that divides it, and is kept whole on each device
over the rest. Nothing is ever padded: a padded weight would have to be masked wherever it is used. Attention's
projections count whole heads, so that no head is ever split over two devices.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from vsr_jax.errors import UserError
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params, ParamSpec, build, param_specs
from vsr_jax.parallel.mesh import AXES

Rules: TypeAlias = Mapping[str, tuple[str, ...]]
"""Mesh axes of each logical axis, outermost first. Logical axes that are not named are kept whole."""

RULES: Rules = MappingProxyType(
    {
        "batch": ("data", "fsdp"),
        "length": ("sequence",),
        "embed": ("fsdp",),
        "vocab": ("tensor",),
        "heads": ("tensor",),
        "kv_heads": ("tensor",),
        "mlp": ("tensor",),
    }
)
"""Weights are sliced over `fsdp` and gathered layer by layer; `tensor` splits heads, feed-forward and vocabulary."""

SAMPLER_RULES: Rules = MappingProxyType({**RULES, "embed": ()})
"""Decoding reads every weight for every token: it pays to hold whole copies along `fsdp` and to slice over `tensor`."""


def _units(config: ModelConfig) -> Mapping[str, int]:
    """Logical axes whose smallest piece is larger than one element, and how many pieces they have."""
    return {"heads": config.num_heads, "kv_heads": config.num_kv_heads}


def partition_spec(
    name: str,
    shape: tuple[int, ...],
    axes: tuple[str | None, ...],
    mesh: Mesh | AbstractMesh,
    rules: Rules = RULES,
    units: Mapping[str, int] = MappingProxyType({}),
) -> PartitionSpec:
    """Where one array's dimensions go.

    Args:
      name: of the array, for errors.
      shape, axes: size and logical name of each dimension; None is kept whole.
      units: number of indivisible pieces of a logical axis, where that is not its size.

    Raises:
      UserError: two dimensions are mapped to one mesh axis, or a rule names an axis that meshes do not have.
    """
    owner: dict[str, str] = {}
    entries: list[tuple[str, ...] | None] = []
    for size, axis in zip(shape, axes, strict=True):
        pieces = units.get(axis, size) if axis else size
        taken: list[str] = []
        divides = True
        for mesh_axis in rules.get(axis, ()) if axis else ():
            if mesh_axis not in mesh.shape:
                raise UserError(f"rule {axis!r} names mesh axis {mesh_axis!r}; axes are {', '.join(AXES)}")
            if mesh_axis in owner:
                raise UserError(
                    f"tensor {name} of shape {shape}: dimensions {owner[mesh_axis]!r} and {axis!r} are both mapped to "
                    f"mesh axis {mesh_axis!r}; change the rule of one of them"
                )
            owner[mesh_axis] = str(axis)
            divides = divides and pieces % math.prod([mesh.shape[a] for a in (*taken, mesh_axis)]) == 0
            if divides and mesh.shape[mesh_axis] > 1:
                taken.append(mesh_axis)
        entries.append(tuple(taken) or None)
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


def sharding_of(config: ModelConfig, mesh: Mesh, rules: Rules = RULES) -> Callable[[ParamSpec], NamedSharding]:
    """The sharding of any entry of the parameter table, in the form that `load_model` takes.

    The callable raises UserError as `partition_spec` does.
    """
    units = _units(config)

    def of(spec: ParamSpec) -> NamedSharding:
        name = ".".join(spec.path)
        return NamedSharding(mesh, partition_spec(name, spec.shape, spec.axes, mesh, rules, units))

    return of


def param_shardings(config: ModelConfig, mesh: Mesh, rules: Rules = RULES) -> Params:
    """A tree like `Params` of `NamedSharding`. Raises UserError as `partition_spec` does."""
    of = sharding_of(config, mesh, rules)
    return build((spec, of(spec)) for spec in param_specs(config))


def state_shardings(config: ModelConfig, state: Any, mesh: Mesh, rules: Rules = RULES) -> Any:
    """Shardings of any tree that holds copies of the parameters: a training state with its moments, say.

    A leaf whose path ends in that of a parameter of the same shape, or of one layer of it, goes where the parameter
    goes; others are whole on every device.

    Args:
      state: tree of arrays or of `jax.ShapeDtypeStruct`.
    """
    of = sharding_of(config, mesh, rules)
    table = {spec.path: spec for spec in param_specs(config)}
    whole = NamedSharding(mesh, PartitionSpec())

    def place(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        keys = tuple(key.key for key in path if isinstance(key, jax.tree_util.DictKey))
        for size in (1, 2):
            spec = table.get(keys[-size:])
            if spec is None:
                continue
            if spec.shape == leaf.shape:
                return of(spec)
            if spec.stacked and spec.shape[1:] == leaf.shape:
                return of(replace(spec, shape=spec.shape[1:], axes=spec.axes[1:]))
        return whole

    return jax.tree_util.tree_map_with_path(place, state)


def batch_shardings(batch: Any, mesh: Mesh, rules: Rules = RULES, *, length: bool = False) -> Any:
    """Shardings of a batch: rows over the axes of `batch`; with `length` their last dimension over those of `length`.

    Rows that do not divide are kept whole on every device, which is correct and slow; make batches of a multiple of
    `rows_multiple(mesh)`.
    """

    def place(leaf: Any) -> NamedSharding:
        shape = jnp.shape(leaf)
        axes: list[str | None] = [None] * len(shape)
        if shape:
            axes[0] = "batch"
        if length and len(shape) > 1:
            axes[-1] = "length"
        return NamedSharding(mesh, partition_spec("batch", shape, tuple(axes), mesh, rules))

    return jax.tree.map(place, batch)


def cache_specs(config: ModelConfig, state: Any, mesh: Mesh | AbstractMesh, rules: Rules = SAMPLER_RULES) -> Any:
    """Where the sampler's device state goes: lanes over the axes of `batch`, key heads over those of `kv_heads`.

    Args:
      state: keys and values [lanes, kv_heads, tokens, head_dim], or slots in place of lanes; others [lanes, ...].
    """

    def place(leaf: Any) -> PartitionSpec:
        axes: list[str | None] = [None] * len(leaf.shape)
        if axes:
            axes[0] = "batch"
        if len(axes) == 4:
            axes[1] = "kv_heads"
        return partition_spec("cache", leaf.shape, tuple(axes), mesh, rules, _units(config))

    return jax.tree.map(place, state)


def cache_shardings(config: ModelConfig, state: Any, mesh: Mesh, rules: Rules = SAMPLER_RULES) -> Any:
    """`cache_specs` on a mesh of devices."""
    return jax.tree.map(partial(NamedSharding, mesh), cache_specs(config, state, mesh, rules))


def keep_placed(update: Callable[..., tuple[Any, Any]], shardings: Any) -> Any:
    """A jitted `(state, ...) -> (state, rest)` whose new state lies where the old one did, whose memory it takes.

    Left to itself the compiler places a result as suits it, and the next step would be compiled anew for that.

    Args:
      shardings: of the state. `rest` (metrics) is whole on every device.
    """
    mesh = jax.tree.leaves(shardings)[0].mesh
    return jax.jit(update, donate_argnums=0, out_shardings=(shardings, NamedSharding(mesh, PartitionSpec())))


def mesh_of(tree: Any) -> Mesh | None:
    """The mesh that the arrays of a tree lie on; None where that is a single device."""
    found = getattr(getattr(jax.tree.leaves(tree)[0], "sharding", None), "mesh", None)
    return found if found is not None and found.size > 1 else None


def rows_multiple(mesh: Mesh, rules: Rules = RULES) -> int:
    """Number of pieces that the rows of a batch are split into."""
    return math.prod(mesh.shape[axis] for axis in rules.get("batch", ()))
