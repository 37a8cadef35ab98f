"""Where a process decodes: a mesh over its own devices, and how the trainer's weights get there.

A process samples its own prompts on its own devices and waits for nobody. Weights leave the trainer's mesh as float32
slices and arrive in the compute dtype, whole or split over `tensor`; nothing passes through the host.
"""

from collections.abc import Mapping
from functools import partial

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params, param_count
from vsr_jax.model.transformer import unstack_layers
from vsr_jax.parallel.mesh import AXES, make_mesh, mesh_sizes, parse_mesh
from vsr_jax.parallel.rules import SAMPLER_RULES, state_shardings


def rollout_sizes(config: ModelConfig, devices: int, device_bytes: float | None) -> dict[str, int]:
    """The least tensor parallelism at which bfloat16 weights take at most a quarter of a device; the rest copies them.

    Args:
      device_bytes: memory of one device; None where nobody says, which copies the weights to every device.
    """
    tensor = 1
    while (
        device_bytes is not None
        and 2 * param_count(config) / tensor > device_bytes / 4
        and devices % (2 * tensor) == 0
        and config.num_kv_heads % (2 * tensor) == 0
    ):
        tensor *= 2
    return {"data": devices // tensor, "tensor": tensor}


def rollout_meshes(config: ModelConfig, mesh: Mesh, sizes: Mapping[str, int] | None = None) -> tuple[Mesh, Mesh]:
    """All devices of a trainer's mesh, and those of this process among them, as meshes to decode on.

    Args:
      sizes: of a process's mesh, as `parse_mesh` returns them; by default those of `rollout_sizes`.

    Returns:
      The mesh of all processes, which are joined along `data`, and its part that is this process's.

    Raises:
      UserError: the sizes do not fit the devices of a process.
    """
    # Stable: devices keep the trainer's order, and with it one jitted transfer, where processes do not interleave.
    devices = sorted(mesh.devices.flat, key=lambda d: d.process_index)
    mine = [d for d in devices if d.process_index == jax.process_index()]
    if sizes is None:
        stats = mine[0].memory_stats() or {}
        sizes = rollout_sizes(config, len(mine), stats.get("bytes_limit"))
    data, *rest = mesh_sizes(sizes, len(mine))
    processes = len(devices) // len(mine)
    whole = Mesh(np.array(devices).reshape(processes * data, *rest), AXES)
    return whole, Mesh(np.array(mine).reshape(data, *rest), AXES)


def own_mesh(text: str) -> Mesh | None:
    """A mesh over this process's devices from a text such as `tensor=4`; None where it is empty.

    Raises:
      UserError: as `parse_mesh` and `make_mesh`.
    """
    return make_mesh(parse_mesh(text), jax.local_devices()) if text else None


def to_rollout(config: ModelConfig, params: Params, whole: Mesh, own: Mesh) -> Params:
    """Parameters of the trainer as the sampler reads them: a layer at a time, in the compute dtype, on `own`.

    Every process must call it.

    Args:
      params: stacked, on a mesh over the devices of `whole`.
      whole, own: as `rollout_meshes` returns them.
    """
    mesh = jax.tree.leaves(params)[0].sharding.mesh
    if list(mesh.devices.flat) != list(whole.devices.flat):
        # One program needs one order of the devices: slices change places first.
        same = Mesh(whole.devices.reshape(mesh.devices.shape), mesh.axis_names)
        params = jax.device_put(params, jax.tree.map(lambda x: NamedSharding(same, _spec(x)), params))
    moved = _weights(config, params, whole)
    if own.size == 1:
        return jax.tree.map(lambda x: x.addressable_data(0), moved)

    def view(x: jax.Array) -> jax.Array:
        pieces = [shard.data for shard in x.addressable_shards]
        return jax.make_array_from_single_device_arrays(x.shape, NamedSharding(own, _spec(x)), pieces)

    return jax.tree.map(view, moved)


def _spec(x: jax.Array) -> PartitionSpec:
    assert isinstance(x.sharding, NamedSharding)
    return x.sharding.spec


@partial(jax.jit, static_argnames=("config", "mesh"))
def _weights(config: ModelConfig, params: Params, mesh: Mesh) -> Params:
    params = unstack_layers(config, params)
    return lax.with_sharding_constraint(params, state_shardings(config, params, mesh, SAMPLER_RULES))
