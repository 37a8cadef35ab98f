"""Checkpoints: exact, also with donated buffers; damage is found and skipped; other meshes; a disk that refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vsr_jax.errors import UserError
from vsr_jax.training.checkpoint import Checkpoints, fingerprints, restore_latest, save

STATE = {"params": {"w": jnp.arange(6000.0).reshape(60, 100)}, "step": jnp.int32(3), "half": jnp.ones(5, jnp.bfloat16)}


def same(a, b) -> bool:
    return all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def moved(state, by: int):
    return jax.tree.map(lambda x: x + jnp.asarray(by, x.dtype), state)


def damage(directory: Path, step: int) -> None:
    """Flips one byte in the middle of the largest file of a checkpoint."""
    file = max((f for f in (directory / str(step)).rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)


def test_values_and_extra_come_back(tmp_path) -> None:
    assert restore_latest(tmp_path / "none", STATE) is None
    with Checkpoints(tmp_path / "c") as checkpoints:
        assert checkpoints.restore_latest(STATE) is None
        checkpoints.save(7, STATE, {"cursor": 12, "curriculum": {"level": [1, 2]}})
    with Checkpoints(tmp_path / "c") as checkpoints:
        step, state, extra = checkpoints.restore_latest(STATE)
    assert (step, extra) == (7, {"cursor": 12, "curriculum": {"level": [1, 2]}})
    assert same(state, STATE)


def test_a_save_holds_the_values_of_its_call_when_the_next_step_donates_them(tmp_path) -> None:
    step = jax.jit(lambda s: jax.tree.map(lambda x: x * 0 - 1, s), donate_argnums=0)
    big = {"w": jnp.arange(2_000_000, dtype=jnp.float32)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, big)
        after = jax.block_until_ready(step(big))
        checkpoints.wait()
        _, state, _ = checkpoints.restore_latest(after)
        assert np.array_equal(state["w"], np.arange(2_000_000, dtype=np.float32))
        # What was restored can be donated in its turn.
        step(state)
        assert state["w"].is_deleted()


def test_the_newest_stay_and_every_so_manieth_for_good(tmp_path) -> None:
    with Checkpoints(tmp_path, keep=2, keep_every=4) as checkpoints:
        for step in range(1, 8):
            checkpoints.save(step, STATE)
    assert sorted(int(p.name) for p in tmp_path.iterdir() if p.name.isdigit()) == [4, 6, 7]


def test_a_step_that_is_saved_again_is_replaced(tmp_path) -> None:
    save(tmp_path, 1, STATE)
    save(tmp_path, 1, moved(STATE, 1))
    assert same(restore_latest(tmp_path, STATE)[1], moved(STATE, 1))


@pytest.mark.parametrize("kind", ["flipped byte", "missing file", "empty folder", "unfinished"])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path, kind, capsys) -> None:
    save(tmp_path, 1, STATE)
    save(tmp_path, 2, moved(STATE, 1))
    if kind == "flipped byte":
        damage(tmp_path, 2)
    elif kind == "missing file":
        next((tmp_path / "2" / "state").rglob("manifest.ocdbt")).unlink()
    elif kind == "empty folder":
        (tmp_path / "3").mkdir()
        damage(tmp_path, 2)
    else:
        (tmp_path / "2").rename(tmp_path / "2.orbax-checkpoint-tmp")
    step, state = restore_latest(tmp_path, STATE)
    assert step == 1
    assert same(state, STATE)
    if kind != "unfinished":
        assert "warning" in capsys.readouterr().err
    # The run goes on and may save that step again.
    save(tmp_path, 2, moved(STATE, 5))
    assert same(restore_latest(tmp_path, STATE)[1], moved(STATE, 5))


def test_a_fingerprint_changes_with_any_bit_and_any_exchange() -> None:
    x = np.arange(1.0, 25.0, dtype=np.float32).reshape(2, 3, 4)
    mark = lambda x: int(fingerprints({"x": jnp.asarray(x)})[0])  # noqa: E731
    marks = {mark(x)}
    for place in range(24):
        for bit in range(32):
            changed = x.copy()
            changed.reshape(-1).view(np.uint32)[place] ^= np.uint32(1 << bit)
            marks.add(mark(changed))
    assert len(marks) == 1 + 24 * 32
    assert mark(x[:, :, ::-1].copy()) not in marks
    assert mark(x[::-1].copy()) not in marks
    assert mark(x.astype(jnp.bfloat16)) != mark(-x.astype(jnp.bfloat16))


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path) -> None:
    save(tmp_path, 1, STATE)
    other = {**STATE, "params": {"w": jnp.zeros((60, 101))}}
    with pytest.raises(UserError, match=r"holds params\.w of shape \(60, 100\), this run has \(60, 101\)"):
        restore_latest(tmp_path, other)
    with pytest.raises(UserError, match="holds more of shape None"):
        restore_latest(tmp_path, {**STATE, "more": jnp.zeros(1)})


ON_MESHES = """
import os, sys, json
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from vsr_jax.parallel.mesh import make_mesh
from vsr_jax.training.checkpoint import save, restore_latest
w = np.arange(64.0, dtype=np.float32).reshape(8, 8)
def place(n, value):
    mesh = make_mesh({"fsdp": n}, jax.devices()[:n])
    put = lambda x, *axes: jax.device_put(x, NamedSharding(mesh, P(*axes)))
    return {"w": put(value, "fsdp"), "n": put(np.int32(5))}
save(sys.argv[1], 1, place(4, w))
found = {}
for n in (1, 2, 8):
    state = restore_latest(sys.argv[1], place(n, w * 0))[1]
    found[n] = bool(np.array_equal(state["w"], w)) and len(state["w"].sharding.device_set) == n and int(state["n"]) == 5
print(json.dumps(found))
"""


def test_saved_on_four_devices_restored_on_others_bit_for_bit(tmp_path) -> None:
    run = subprocess.run([sys.executable, "-c", ON_MESHES, str(tmp_path)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {"1": True, "2": True, "8": True}
    # And here, on one device of another process.
    like = {"w": jnp.zeros((8, 8)), "n": jnp.int32(0)}
    assert np.array_equal(restore_latest(tmp_path, like)[1]["w"], np.arange(64.0).reshape(8, 8))


FULL_DISK = """
import resource, sys
import jax.numpy as jnp, numpy as np
from vsr_jax.errors import UserError
from vsr_jax.training.checkpoint import save, restore_latest
state = {"w": jnp.asarray(np.random.default_rng(0).normal(size=300_000), jnp.float32)}
save(sys.argv[1], 1, state)
# From here on no file may grow beyond 100 kB, as when a disk is full.
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    save(sys.argv[1], 2, {"w": state["w"] + 1})
except UserError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
step, found = restore_latest(sys.argv[1], state)
assert step == 1 and np.array_equal(found["w"], state["w"])
save(sys.argv[1], 3, state)
assert restore_latest(sys.argv[1], state)[0] == 3
"""


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are of Unix")
def test_a_disk_that_refuses_is_one_clear_error_and_the_last_checkpoint_stays(tmp_path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, env=dict(os.environ)
    )
    assert run.returncode == 0, run.stderr
    assert "could not save" in run.stdout
    assert "earlier ones are kept" in run.stdout
    assert len(run.stdout.splitlines()) == 1
