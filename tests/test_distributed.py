"""Several processes: real ones give the numbers of one; launches are recognised; who is missing is named."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vsr_jax.data.store import read_rollouts
from vsr_jax.errors import UserError
from vsr_jax.parallel.distributed import Launch, barrier, find_launch, gather_rows, local_rows, start
from vsr_jax.training.checkpoint import read_metrics, untimed

WORKER = Path(__file__).parent / "process_worker.py"


@pytest.mark.parametrize(
    ("environment", "by"),
    [
        ({}, "alone"),
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, "alone"),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_JOB_ID": "7"}, "slurm"),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, "alone"),
        ({"TPU_WORKER_HOSTNAMES": "10.0.0.1,10.0.0.2", "TPU_WORKER_ID": "1"}, "cloud tpu"),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "KUBERNETES_SERVICE_HOST": "10.0.0.9"}, "gke"),
        ({"MEGASCALE_NUM_SLICES": "2", "TPU_WORKER_HOSTNAMES": "a", "KUBERNETES_SERVICE_HOST": "x"}, "gke"),
    ],
)
def test_how_a_process_was_started(environment, by) -> None:
    assert find_launch(environment).by == by


def test_explicit_flags_come_first_and_must_be_complete() -> None:
    flags = {"VSR_COORDINATOR": "host:1234", "VSR_PROCESSES": "4", "VSR_PROCESS": "3", "SLURM_NTASKS": "9"}
    assert find_launch(flags) == Launch("flags", "host:1234", 4, 3)
    for change, says in (
        ({"VSR_PROCESS": ""}, "VSR_PROCESS is not set"),
        ({"VSR_PROCESS": "4"}, "'4' is not one of 0"),
        ({"VSR_COORDINATOR": "host"}, "has no port"),
    ):
        with pytest.raises(UserError, match=says):
            find_launch({**flags, **change})


def test_rows_are_shared_out_completely_and_evenly() -> None:
    for count in (0, 1, 7, 64):
        for processes in (1, 2, 3, 8):
            shares = [local_rows(count, p, processes) for p in range(processes)]
            assert [i for share in shares for i in share] == list(range(count))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_needs_nobody() -> None:
    assert start(Launch("alone")).by == "alone"
    barrier("nobody", timeout_s=0.01)
    assert gather_rows({"x": np.arange(3)})["x"].tolist() == [0, 1, 2]


def run_processes(count: int, mode: str, *arguments: object) -> list[str]:
    """Standard output of each process."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    running = []
    for process in range(count):
        flags = {"VSR_COORDINATOR": f"localhost:{port}", "VSR_PROCESSES": str(count), "VSR_PROCESS": str(process)}
        command = [sys.executable, str(WORKER), mode, *map(str, arguments)]
        running.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment | (flags if count > 1 else {}),
            )
        )
    results = [process.communicate(timeout=600) for process in running]
    for process, (_, errors) in zip(running, results, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [output for output, _ in results]


def metrics(outputs: list[str]) -> list[dict[str, float]]:
    return json.loads(next(line for line in outputs[0].splitlines() if line.startswith("[{")))


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> list[dict[str, float]]:
    found = metrics(run_processes(1, "train", tmp_path_factory.mktemp("alone")))
    assert len(found) == 2
    assert all(line["grad_norm"] > 0 for line in found)
    return found


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_training_over_several_processes_gives_the_metrics_of_one(alone, processes, tmp_path: Path) -> None:
    outputs = run_processes(processes, "train", tmp_path)
    found = metrics(outputs)
    assert not any("[{" in output for output in outputs[1:])
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2  # one process writes
    for line, other in zip(found, alone, strict=True):
        for name in ("reward", "length", "truncated", "groups_mixed", "cursor"):
            assert line[name] == other[name], name
        for name in untimed(other):
            np.testing.assert_allclose(line[name], other[name], rtol=1e-4, atol=1e-6, err_msg=name)


def same_or_forked(mine: dict, other: dict) -> bool:
    """Whether two samples part at some token; until there they must have the same tokens and log-probabilities.

    Rounding depends on how many rows a process has, and a draw may fall just between two tokens.
    """
    apart = [i for i, (a, b) in enumerate(zip(mine["tokens"], other["tokens"], strict=False)) if a != b]
    until = apart[0] if apart else None
    np.testing.assert_allclose(mine["logp"][:until], other["logp"][:until], atol=1e-4)
    if until is None:
        assert (mine["tokens"], mine["passed"]) == (other["tokens"], other["passed"])
    return until is not None


@pytest.mark.slow
def test_a_study_is_shared_by_the_processes_of_a_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What one process compiled for itself, two need not compile again.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    for processes in (1, 2):
        run_processes(processes, "study", tmp_path / str(processes))
    one, two = (sorted((tmp_path / name / "stages").iterdir()) for name in "12")
    assert [folder.name for folder in one] == [folder.name for folder in two]
    kinds, compared, forked = set(), 0, 0
    for mine, other in zip(two, one, strict=True):
        assert (mine / "done.json").exists()
        tables = sorted(file.relative_to(other) for file in other.rglob("rollouts.parquet"))
        assert tables == sorted(file.relative_to(mine) for file in mine.rglob("rollouts.parquet"))
        for name in tables:
            found, wanted = (read_rollouts((folder / name).parent) for folder in (mine, other))
            ids = ["prompt_id", "sample_id"]
            assert found.select(ids).equals(wanted.select(ids)), mine.name
            # Trained policies agree to rounding; only the Base's samples must be the same to the token.
            if "base" in other.name:
                compared += len(wanted)
                forked += sum(map(same_or_forked, found.to_pylist(), wanted.to_pylist()))
        if (other / "metrics.jsonl").exists():
            for line, same in zip(*(read_metrics(folder / "metrics.jsonl") for folder in (mine, other)), strict=True):
                np.testing.assert_allclose(line["loss"], same["loss"], rtol=1e-3, atol=1e-5)
        kinds.add(mine.name.split("-")[0])
    assert {"base", "math", "measure", "localize", "force"} <= kinds
    assert forked <= 0.02 * compared


def test_a_barrier_names_who_is_missing() -> None:
    outputs = run_processes(2, "missing")
    assert "barrier 'meeting': process 0 of 2 did not come within 2 s" in outputs[1]


def test_processes_that_would_drift_apart_are_stopped() -> None:
    outputs = run_processes(2, "disagree")
    assert "process 1 and process 0 disagree on the order" in outputs[1]
