"""Loading onto a mesh: what plain loading gives, each process reading its own slices, and writing back."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from vsr_jax.model.checkpoint_io import load_model, save_model

TESTS = Path(__file__).parent
NAMES = ("qwen2", "qwen3_tied", "qwen3_untied", "llama")


def run(out: Path, processes: int) -> list[dict]:
    """Runs the script in `processes` processes and returns what each printed."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    # Only what the script sets itself may decide the number of devices.
    env = {key: value for key, value in os.environ.items() if key not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    running = [
        subprocess.Popen(
            [sys.executable, str(TESTS / "mesh_loading.py"), str(out), str(i), str(processes), str(port)],
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for i in range(processes)
    ]
    try:
        printed = [process.communicate(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, errors) in zip(running, printed, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(output.splitlines()[-1]) for output, _ in printed]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_mesh_holds_what_plain_loading_gives_and_each_process_reads_its_slices(
    tmp_path: Path, processes: int
) -> None:
    reports = run(tmp_path / "mesh", processes)
    for name in NAMES:
        config, params = load_model(TESTS / "goldens" / name)
        whole = sum(x.nbytes for x in jax.tree.leaves(params))
        for report in reports:
            assert report[name]["read"] == report[name]["shards"]
            # The vectors of the norms are on every device; all matrices are split over the data axis.
            assert report[name]["read"] < whole / processes * 1.1
        save_model(config, params, tmp_path / "plain" / name, max_shard_bytes=40_000)
        plain, mesh = ({f.name: f.read_bytes() for f in (tmp_path / d / name).iterdir()} for d in ("plain", "mesh"))
        assert mesh == plain
