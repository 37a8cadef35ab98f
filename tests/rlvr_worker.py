"""Run as a program: a short RLVR run on the micro Base that may kill itself. Used by the kill tests.

    rlvr_worker.py OUT [PHASE STEP MILLISECONDS]

PHASE is rollout, update or save: SIGKILL comes that long after the phase of that step begins, or SIGTERM at once for
the phase `term`.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np

from vsr_jax.data import micro
from vsr_jax.data.micro import BASE
from vsr_jax.model.params import param_specs
from vsr_jax.study.policy import load_policy
from vsr_jax.training import on_policy, rounds
from vsr_jax.training.checkpoint import Checkpoints
from vsr_jax.training.settings import RlvrSettings

SETTINGS = RlvrSettings(
    steps=5,
    prompts=2,
    samples=4,
    max_tokens=16,
    learning_rate=1e-3,
    micro_prompts=2,
    checkpoint_every=1,
    reward="fraction",
    extract="boxed",
    seed=3,
)


def armed(function, step: int, delay: float):
    """`function`, whose call number `step` starts the clock."""
    calls = iter(range(1_000_000))

    def wrapped(*args, **kwargs):
        if next(calls) == step:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return function(*args, **kwargs)

    return wrapped


def main() -> None:
    out = Path(sys.argv[1])
    on_step = None
    if len(sys.argv) > 2:
        phase, step, delay = sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) / 1000
        if phase == "rollout":
            rounds.sample = armed(rounds.sample, step, delay)
        elif phase == "update":
            make = on_policy.make_update
            on_policy.make_update = lambda *args, **kwargs: armed(make(*args, **kwargs), step, delay)
        elif phase == "save":
            Checkpoints.save = armed(Checkpoints.save, step, delay)
        else:
            on_step = lambda done, line: os.kill(os.getpid(), signal.SIGTERM) if done == step else None  # noqa: E731
    policy = load_policy(BASE, name="Base")
    rows = micro.instruction_rows(micro.DEFAULT, 0, 5)
    params = on_policy.train_rlvr(
        policy.config,
        policy.params,
        rows,
        lambda row: policy.encode(row, "micro"),
        policy.tokenizer,
        policy.stop_ids,
        SETTINGS,
        out,
        on_step=on_step,
    )
    layers = {spec.path[-1]: params["layers"][spec.path[-1]] for spec in param_specs(policy.config) if spec.stacked}
    np.savez(out / "final.npz", embed=params["embed"], final_norm=params["final_norm"], **layers)


if __name__ == "__main__":
    main()
