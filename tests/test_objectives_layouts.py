"""One loss, however its tokens are split: over micro-batches, over devices, over both.

Devices are made before JAX starts, so the layouts are computed by running this file as a script of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

LAYOUTS = {"one part": (1, None), "two parts": (1, 2), "two devices": (2, None), "two by two": (2, 2)}
"""Devices that share the rows, and rows a micro-batch."""


def losses_and_gradients() -> dict[str, list[float]]:
    """For every layout the loss, then the whole gradient, of two sequences of 12 and 4 tokens whose mean losses are
    1 and 3, each cut into two rows."""
    import jax
    import optax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from tiny_models import rollouts_of, tiny_model

    from vsr_jax.objectives.reducers import token_mean
    from vsr_jax.objectives.types import Objective
    from vsr_jax.scoring import target_logprob
    from vsr_jax.training.batches import grouped_batch
    from vsr_jax.training.step import init_state, make_update

    config, params = tiny_model(0)
    rollouts = rollouts_of([[1], [2], [3], [4]], [list(range(n)) for n in (7, 5, 3, 1)])
    value = np.broadcast_to(np.array([1, 1, 3, 3], np.float32)[:, None], rollouts.tokens.shape)
    batch = grouped_batch(rollouts, np.ones((4, 1), np.float32), extra={"value": value}, widths=(2, 8))

    def per_token(logits, tokens):
        """The stored value, with the gradient of value times log-probability."""
        logp = target_logprob(logits, tokens.target)
        return tokens.stored("value") * (1 + logp - jax.lax.stop_gradient(logp)), {}

    def run(devices: int, micro: int | None) -> list[float]:
        update = make_update(config, Objective(per_token, token_mean), optax.sgd(1.0), micro=micro, remat=False)
        mesh = Mesh(np.array(jax.devices()[:devices]), ("rows",))
        spread = lambda x: NamedSharding(mesh, PartitionSpec(*["rows"] * bool(np.ndim(x))))  # noqa: E731
        state = jax.device_put(init_state(params, optax.sgd(1.0)), NamedSharding(mesh, PartitionSpec()))
        state, metrics = update(state, jax.device_put(batch, jax.tree.map(spread, batch)))
        change = jax.tree.map(lambda old, new: np.asarray(old - new).ravel(), params, state.params)
        return [float(metrics["loss"]), *np.concatenate(jax.tree.leaves(change)).tolist()]

    return {name: run(*layout) for name, layout in LAYOUTS.items()}


def test_loss_and_gradient_are_the_same_in_every_layout() -> None:
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent)])
    done = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)
    whole = np.array(runs["one part"][1:])
    assert np.linalg.norm(whole) > 0.1
    for name, (loss, *gradient) in runs.items():
        # Neither the mean of means, 2.0, nor a division by the number of parts.
        np.testing.assert_allclose(loss, 1.5, rtol=1e-6, err_msg=name)
        assert np.linalg.norm(gradient - whole) <= 1e-6 * np.linalg.norm(whole), name


if __name__ == "__main__":
    print(json.dumps(losses_and_gradients()))
