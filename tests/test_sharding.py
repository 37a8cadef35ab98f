"""Sharding: any mesh gives the numbers of one device; the rules as data; meshes that do not fit are refused by name."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from vsr_jax.errors import UserError
from vsr_jax.model.config import parse_config
from vsr_jax.model.params import param_specs
from vsr_jax.model.presets import PRESETS, preset
from vsr_jax.parallel.mesh import AXES, format_mesh, make_mesh, mesh_sizes, parse_mesh
from vsr_jax.parallel.rules import RULES, batch_shardings, param_shardings, partition_spec, state_shardings

HERE = Path(__file__).parent
# The worker's batch has 8 rows, its model 4 heads, 2 key heads and width 24, so that some of these do not divide.
# Beside each mesh, the share of the largest matrix that lies on one device.
MESHES = {
    "fsdp=8": 1 / 8,
    "tensor=4": 1 / 4,
    "fsdp=4,tensor=2": 1 / 8,
    "data=2,fsdp=2,tensor=2": 1 / 4,
    "data=3,fsdp=2": 1 / 2,
    "fsdp=2,sequence=2,tensor=2": 1 / 4,
}


@pytest.fixture(scope="module")
def measured() -> dict[str, dict]:
    run = subprocess.run(
        [sys.executable, HERE / "sharding_worker.py", *MESHES], capture_output=True, text=True, env=dict(os.environ)
    )
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    return {line.get("mesh", "clip"): line for line in lines}


@pytest.mark.parametrize("mesh", MESHES)
def test_a_mesh_gives_the_numbers_of_one_device(measured, mesh) -> None:
    found = measured[mesh]
    for name in ("loss", "grad_norm", "gradient", "updated", "micro", "scores", "logp"):
        assert found[name] < 1e-5, name
    assert found["tokens"]
    assert found["moved"]
    assert found["local_share"] == MESHES[mesh]


def test_the_gradient_is_clipped_by_the_norm_of_all_shards(measured) -> None:
    np.testing.assert_allclose(measured["clip"]["clipped_pair"], [0.6, 0.8], rtol=1e-6)
    for mesh in MESHES:
        assert measured[mesh]["norm_of_clipped"] == pytest.approx(0.01, rel=1e-5)


def test_mesh_text_and_sizes() -> None:
    assert parse_mesh("fsdp=16, tensor=2") == {"fsdp": 16, "tensor": 2}
    assert mesh_sizes({"fsdp": -1, "tensor": 2}, 8) == (1, 4, 1, 2)
    assert format_mesh({"tensor": 2, "fsdp": 4, "data": 1}) == "fsdp=4,tensor=2"
    assert format_mesh({}) == "data=1"
    assert make_mesh({}, jax.devices()[:1]).axis_names == AXES


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fdsp=4", "unknown axis 'fdsp'"),
        ("fsdp", "size of fsdp must be an integer, found ''"),
        ("fsdp=2,fsdp=2", "fsdp is given twice"),
        ("fsdp=3", "fsdp=3 asks for 3 devices, there are 8"),
        ("fsdp=-1,data=-1", "one may be -1"),
        ("fsdp=-1,data=3", "8 devices do not divide by 3"),
        ("data=0", "must be positive"),
    ],
)
def test_meshes_that_cannot_be_are_refused(text, says) -> None:
    with pytest.raises(UserError, match=says):
        mesh_sizes(parse_mesh(text), 8)


def mesh_of(**sizes: int):
    """Enough of a mesh for `partition_spec`, of any size, without devices."""
    return SimpleNamespace(shape={axis: sizes.get(axis, 1) for axis in AXES})


def test_two_dimensions_on_one_mesh_axis_are_an_error_that_names_the_tensor() -> None:
    rules = {**RULES, "embed": ("fsdp", "tensor")}
    with pytest.raises(
        UserError, match=r"tensor layers\.gate .*'mlp' and 'embed' are both mapped to mesh axis 'tensor'"
    ):
        partition_spec("layers.gate", (2, 8, 4), ("layers", "mlp", "embed"), mesh_of(), rules)
    with pytest.raises(UserError, match="names mesh axis 'expert'"):
        partition_spec("x", (2,), ("mlp",), mesh_of(), {"mlp": ("expert",)})


def test_dimensions_that_do_not_divide_are_kept_whole_and_heads_are_never_cut() -> None:
    spec = lambda axes, shape, mesh, **units: partition_spec("x", shape, axes, mesh, RULES, units)  # noqa: E731
    assert spec(("vocab", "embed"), (80, 24), mesh_of(fsdp=8, tensor=2)) == PartitionSpec("tensor", "fsdp")
    assert spec(("vocab", "embed"), (81, 24), mesh_of(fsdp=8, tensor=2)) == PartitionSpec(None, "fsdp")
    assert spec(("batch",), (4,), mesh_of(data=2, fsdp=4)) == PartitionSpec("data")
    assert spec(("batch",), (8,), mesh_of(data=2, fsdp=4)) == PartitionSpec(("data", "fsdp"))
    # 2 key heads of 8 would fill 4 devices with half heads.
    assert spec(("kv_heads", "embed"), (16, 24), mesh_of(tensor=4), kv_heads=2) == PartitionSpec()


def test_every_published_size_has_a_sharding_on_a_pod_slice() -> None:
    """16-way fsdp must cut every matrix of every preset, or a planned run would quietly hold whole copies."""
    for name in PRESETS:
        config = parse_config(preset(name))
        for spec in param_specs(config):
            if len(spec.shape) - spec.stacked == 2:
                found = partition_spec(name, spec.shape, spec.axes, mesh_of(fsdp=16))
                assert "fsdp" in str(found), (name, spec.path)


def test_state_and_batch_follow_their_paths() -> None:
    config = parse_config(preset("qwen3-0.6b"))
    mesh = make_mesh({}, jax.devices()[:1])
    abstract = {spec.path[-1]: jax.ShapeDtypeStruct(spec.shape, np.float32) for spec in param_specs(config)}
    state = {
        "moments": {"layers": {"q": abstract["q"]}, "embed": abstract["embed"]},
        "step": jax.ShapeDtypeStruct((), int),
    }
    # All axes have size 1 here, so that only the structure can be compared.
    assert jax.tree.structure(state_shardings(config, state, mesh)) == jax.tree.structure(state)
    assert param_shardings(config, mesh).keys() == {"embed", "layers", "final_norm"}
    assert batch_shardings({"x": np.zeros((4, 2)), "n": np.int32(3)}, mesh)["n"].spec == PartitionSpec()
