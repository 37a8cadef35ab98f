"""A run that is killed at any point and started again ends bit for bit like one that never was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vsr_jax.training.checkpoint import read_metrics, untimed

WORKER = Path(__file__).parent / "rlvr_worker.py"
# Phase, its number in the process that is killed, milliseconds after its beginning.
POINTS = [("rollout", 1, 5), ("update", 1, 2), ("save", 0, 10)]


class Runs:
    """Runs of the worker that share compiled programs."""

    def __init__(self, root: Path):
        self.root = root
        self.environment = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(root / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def __call__(self, name: str, *arguments: object) -> int:
        command = [sys.executable, str(WORKER), str(self.root / name), *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        assert run.returncode in (0, -signal.SIGKILL), run.stderr
        return run.returncode

    def result(self, name: str) -> tuple[dict, list[dict]]:
        with np.load(self.root / name / "final.npz") as file:
            arrays = dict(file)
        lines = read_metrics(self.root / name / "metrics.jsonl")
        return arrays, [untimed(line) for line in lines]

    def assert_same(self, name: str) -> None:
        (arrays, lines), (other, others) = self.result(name), self.result("whole")
        assert lines == others
        assert [line["step"] for line in lines] == list(range(5))
        assert all(np.array_equal(arrays[key], other[key]) for key in other)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    runs = Runs(tmp_path_factory.mktemp("kill"))
    assert runs("whole") == 0
    _, lines = runs.result("whole")
    assert any(line["grad_norm"] > 0 for line in lines), "a run that learns nothing would prove nothing"
    return runs


def test_killed_in_a_rollout_an_update_and_a_save(runs) -> None:
    for point in POINTS:
        assert runs("killed", *point) == -signal.SIGKILL
    assert runs("killed") == 0
    runs.assert_same("killed")


def test_a_preemption_notice_saves_the_step_and_exits_with_0(runs) -> None:
    assert runs("preempted", "term", 2, 0) == 0
    folder = runs.root / "preempted"
    assert not (folder / "final.npz").exists()
    assert max(int(p.name) for p in (folder / "checkpoints").iterdir() if p.name.isdigit()) == 3
    assert len(read_metrics(folder / "metrics.jsonl")) == 3
    assert runs("preempted") == 0
    runs.assert_same("preempted")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_killed_at_random(runs, seed) -> None:
    random = np.random.default_rng(seed)
    phase = ("rollout", "update", "save")[seed % 3]
    delay = random.uniform(0, {"rollout": 60, "update": 60, "save": 120}[phase])
    # A point late in the run may come after its end; then nothing was killed and the results are compared all the same.
    runs(f"random{seed}", phase, random.integers(0, 5), delay)
    assert runs(f"random{seed}") == 0
    runs.assert_same(f"random{seed}")
