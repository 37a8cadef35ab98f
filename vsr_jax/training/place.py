"""Where a training loop's arrays lie: on one device, or on a mesh over all processes."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import optax
from jax.sharding import Mesh, SingleDeviceSharding

from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.parallel.distributed import place_host
from vsr_jax.parallel.rollout import rollout_meshes, to_rollout
from vsr_jax.parallel.rules import batch_shardings, keep_placed, param_shardings, rows_multiple, state_shardings
from vsr_jax.training.step import TrainState, init_state


@dataclass(frozen=True)
class Place:
    """Attributes:
    mesh: of the trainer; None for one device.
    rollout: meshes of all processes and of this one to sample on, see `rollout_meshes`.
    """

    config: ModelConfig
    mesh: Mesh | None
    rollout: tuple[Mesh, Mesh] | None = None

    def like(self, params: Params, optimizer: optax.GradientTransformation) -> Any:
        """Shapes, dtypes and shardings of the training state, as checkpoints are restored to."""
        abstract = jax.eval_shape(lambda p: init_state(p, optimizer), params)
        if self.mesh is None:
            one = SingleDeviceSharding(jax.devices()[0])
            shardings = jax.tree.map(lambda _: one, abstract)
        else:
            shardings = state_shardings(self.config, abstract, self.mesh)
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, shardings)

    def start(self, params: Params, optimizer: optax.GradientTransformation, like: Any, *, take: bool) -> TrainState:
        """A state at step 0, made where it lies; `take` as in `init_state`."""
        if self.mesh is None:
            return init_state(params, optimizer, take=take)
        shardings = jax.tree.map(lambda x: x.sharding, like)
        make = partial(init_state, optimizer=optimizer, take=take)
        made = jax.jit(make, out_shardings=shardings, donate_argnums=0 if take else ())
        return made(self.model(self.config, params))

    def update(self, update: Callable[..., Any], like: Any) -> Callable[..., Any]:
        """The update, whose new state lies where the old one did."""
        return update if self.mesh is None else keep_placed(update, jax.tree.map(lambda x: x.sharding, like))

    def micro(self, rows: int) -> int:
        """Rows differentiated at a time: `rows`, rounded up to a share for every device."""
        pieces = 1 if self.mesh is None else rows_multiple(self.mesh)
        return -(-rows // pieces) * pieces

    def batch(self, batch: Any) -> Any:
        """A batch of host arrays, the same on every process."""
        return batch if self.mesh is None else place_host(batch, batch_shardings(batch, self.mesh))

    def model(self, config: ModelConfig, params: Params) -> Params:
        """Parameters of any model."""
        return params if self.mesh is None else place_host(params, param_shardings(config, self.mesh))

    def sampler(self, params: Params) -> Params:
        """The policy as this process samples from it."""
        return params if self.rollout is None else to_rollout(self.config, params, *self.rollout)

    def context(self) -> Any:
        """What updates and scores run under."""
        return nullcontext() if self.mesh is None else jax.set_mesh(self.mesh)


def place_on(config: ModelConfig, mesh: Mesh | None, rollout: Mapping[str, int] | None = None) -> Place:
    """A place for one model on a mesh, and for sampling on this process's part of it.

    Args:
      rollout: sizes of the part's mesh; see `rollout_sizes` for the default.

    Raises:
      UserError: the sizes do not fit the devices of a process.
    """
    return Place(config, mesh, None if mesh is None else rollout_meshes(config, mesh, rollout))
