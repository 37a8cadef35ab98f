"""`vsr export`: from a model, a run folder or a checkpoint to a directory that loads again with the same numbers."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig

import vsr_jax
from vsr_jax.data import micro
from vsr_jax.data.tokenizer import load_tokenizer, stop_ids
from vsr_jax.errors import UserError
from vsr_jax.model.checkpoint_io import load_model, save_model
from vsr_jax.model.config import read_config
from vsr_jax.model.params import Params
from vsr_jax.study.export_command import export
from vsr_jax.training.checkpoint import save, write_json
from vsr_jax.training.step import adamw, init_state

GOLDENS = Path(__file__).parent / "goldens"
BASE = Path(micro.__file__).parent / "base"


def moved(params: Params, by: float) -> Params:
    """Other weights of the same shapes."""
    return jax.tree.map(lambda x: x + by, params)


def assert_same(a: Params, b: Params) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), a, b)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder of a micro policy: settings that name its model, and checkpoints of steps 10 and 20."""
    folder = tmp_path / "run"
    _, params = load_model(BASE)
    for step in (10, 20):
        save(folder / "checkpoints", step, init_state(moved(params, step), adamw(1e-3)))
    write_json(folder / "settings.json", {"model": str(BASE), "revision": None, "max_position": 96})
    return folder


@pytest.mark.parametrize("name", ["qwen2", "qwen3_tied", "qwen3_untied", "llama"])
@pytest.mark.parametrize("limit", [20_000, 5_000_000_000])
def test_a_model_directory_comes_back_bit_for_bit(tmp_path: Path, name: str, limit: int) -> None:
    said = export(GOLDENS / name, tmp_path / "out", max_shard_bytes=limit)
    before, after = ({}, {})
    for tensors, folder in ((before, GOLDENS / name), (after, tmp_path / "out")):
        for file in folder.glob("*.safetensors"):
            tensors |= load_file(file)
    assert after.keys() == before.keys()
    for tensor, value in before.items():
        assert after[tensor].dtype == value.dtype
        np.testing.assert_array_equal(after[tensor], value)
    assert (tmp_path / "out" / "model.safetensors.index.json").exists() == (limit == 20_000)
    assert f"weights: {len(before)} tensors as {'bfloat16' if name == 'llama' else 'float32'}" in said
    generation = [(d / "generation_config.json").read_bytes() for d in (GOLDENS / name, tmp_path / "out")]
    assert generation[0] == generation[1]


@pytest.mark.parametrize("name", ["qwen2", "qwen3_tied", "qwen3_untied", "llama"])
def test_the_reference_reads_the_same_config_from_what_is_written(tmp_path: Path, name: str) -> None:
    export(GOLDENS / name, tmp_path / "out")
    written, original = (AutoConfig.from_pretrained(d).to_dict() for d in (tmp_path / "out", GOLDENS / name))
    # A head size that equals the even share may be spelt out; what a switch that is off would do does not matter.
    silent = {"head_dim", "_name_or_path", "transformers_version", "sliding_window", "max_window_layers"}
    assert {k: v for k, v in written.items() if k not in silent} == {
        k: v for k, v in original.items() if k not in silent
    }


def test_a_micro_policy_is_exported_with_its_tokenizer(tmp_path: Path) -> None:
    export(BASE, tmp_path / "out")
    config, params = load_model(tmp_path / "out")
    again, reloaded = load_model(BASE)
    assert config == again
    assert_same(params, reloaded)
    one, other = load_tokenizer(tmp_path / "out"), load_tokenizer(BASE)
    assert one.get_vocab() == other.get_vocab()
    assert stop_ids(tmp_path / "out", one) == stop_ids(BASE, other)
    assert not list(tmp_path.glob(".*"))


def test_weights_can_be_read_by_whoever_can_read_the_config(tmp_path: Path) -> None:
    export(BASE, tmp_path / "out")
    assert len({file.stat().st_mode for file in (tmp_path / "out").iterdir()}) == 1


def test_a_run_folder_gives_its_newest_checkpoint(run: Path, tmp_path: Path) -> None:
    said = export(run, tmp_path / "out")
    assert f"from: {run / 'checkpoints'}, step 20" in said
    config, params = load_model(tmp_path / "out")
    assert config.max_position == 96  # the context that the run was given by name
    assert_same(params, moved(load_model(BASE)[1], 20))
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (BASE / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(("source", "step"), [("", 10), ("checkpoints", 10), ("checkpoints/10", None)])
def test_a_step_is_named_or_pointed_at(run: Path, tmp_path: Path, source: str, step: int | None) -> None:
    export(run / source, tmp_path / "out", step=step, dtype="bfloat16")
    _, params = load_model(tmp_path / "out", "bfloat16")
    expected = jax.tree.map(lambda x: x.astype(jnp.bfloat16), moved(load_model(BASE)[1], 10))
    assert_same(params, expected)
    assert read_config(tmp_path / "out" / "config.json")["torch_dtype"] == "bfloat16"


def test_a_finished_run_gives_its_model_and_on_request_a_checkpoint(run: Path, tmp_path: Path) -> None:
    config, params = load_model(BASE)
    (run / "settings.json").unlink()  # the folder's own model says enough
    save_model(config, moved(params, 99), run / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(BASE / name, run / "model" / name)
    export(run, tmp_path / "model")
    assert_same(load_model(tmp_path / "model")[1], moved(params, 99))
    export(run, tmp_path / "checkpoint", step=20)
    assert_same(load_model(tmp_path / "checkpoint")[1], moved(params, 20))
    # The model had no generation config: the one written names the stop set.
    assert read_config(tmp_path / "model" / "generation_config.json") == {"eos_token_id": [1]}


def test_a_checkpoint_with_its_own_head_is_exported_untied(tmp_path: Path) -> None:
    _, params = load_model(BASE)
    params["lm_head"] = params["embed"] * 2
    save(tmp_path / "checkpoints", 1, init_state(params, adamw(1e-3)))
    export(tmp_path / "checkpoints", tmp_path / "out", model=str(BASE))
    config, reloaded = load_model(tmp_path / "out")
    assert not config.tie_word_embeddings
    assert_same(reloaded, params)


def test_token_ids_of_the_config_stay(tmp_path: Path) -> None:
    export(GOLDENS / "qwen2", tmp_path / "out")
    fields = ("bos_token_id", "eos_token_id")
    before, after = (read_config(d / "config.json") for d in (GOLDENS / "qwen2", tmp_path / "out"))
    assert {name: after[name] for name in fields} == {name: before[name] for name in fields}


def test_mixed_weights_are_widened_rather_than_rounded(tmp_path: Path) -> None:
    config, params = load_model(GOLDENS / "llama", "bfloat16")
    save_model(config, params, tmp_path / "in", dtype="bfloat16")
    file = tmp_path / "in" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.float32) + 1e-6
    save_file(tensors, file)
    assert "as float32" in export(tmp_path / "in", tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")["model.norm.weight"]
    np.testing.assert_array_equal(written, tensors["model.norm.weight"])


def test_what_cannot_be_exported_is_said_in_one_line(run: Path, tmp_path: Path) -> None:
    def refused(message: str, *args, **options) -> None:
        with pytest.raises(UserError) as caught:
            export(*args, **options)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    out = tmp_path / "out"
    refused("no such directory", tmp_path / "nowhere", out)
    refused("has no step 15; it holds 10, 20", run, out, step=15)
    refused("is the checkpoint of step 10; drop --step 20", run / "checkpoints" / "10", out, step=20)
    refused("is a model, not a checkpoint; drop --step 20", BASE, out, step=20)
    refused("parameter embed has shape (181, 96)", run, out, model=str(GOLDENS / "qwen2"))
    (run / "settings.json").unlink()
    refused("name it with --model", run, out)
    shutil.copytree(BASE, tmp_path / "study" / "stages" / "base" / "model")
    refused(f"below it there are {tmp_path / 'study' / 'stages' / 'base'}", tmp_path / "study", out)
    out.mkdir()
    export(BASE, out)  # an empty directory may be there
    refused("is not an empty directory", BASE, out)
    assert not list(tmp_path.glob(".*"))


def flip(folder: Path) -> None:
    """One bit in the middle of every data file of some size."""
    for file in folder.rglob("*"):
        if file.is_file() and file.parent.name == "d" and file.stat().st_size > 10_000:
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 16
            file.write_bytes(content)


def test_a_damaged_checkpoint_is_refused_and_another_step_still_exports(run: Path, tmp_path: Path) -> None:
    flip(run / "checkpoints" / "20")
    with pytest.raises(UserError, match=r"checkpoints/20: .*choose another --step"):
        export(run, tmp_path / "out")
    export(run, tmp_path / "out", step=10)
    assert_same(load_model(tmp_path / "out")[1], moved(load_model(BASE)[1], 10))


def test_parameters_other_than_those_saved_are_refused(run: Path, tmp_path: Path) -> None:
    extra = run / "checkpoints" / "20" / "extra" / "metadata"
    held = json.loads(extra.read_text())
    held["marks"][0] ^= 1
    extra.write_text(json.dumps(held))
    with pytest.raises(UserError, match="its parameters are not those that were saved"):
        export(run, tmp_path / "out")


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints", 3, {"weights": np.zeros(3, np.float32)})
    with pytest.raises(UserError, match=r"checkpoints/3: is not the checkpoint of a training state"):
        export(tmp_path, tmp_path / "out", model=str(BASE))


def test_a_killed_export_leaves_no_directory_and_does_not_stand_in_the_way(tmp_path: Path) -> None:
    leftover = tmp_path / ".out.partial"
    leftover.mkdir()
    (leftover / "model-00001-of-00009.safetensors").write_text("torn")
    export(BASE, tmp_path / "out")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["out"]
    assert sorted(f.name for f in (tmp_path / "out").glob("*.safetensors")) == ["model.safetensors"]


def test_exported_policies_score_alike(tmp_path: Path) -> None:
    export(GOLDENS / "qwen3_untied", tmp_path / "out", max_shard_bytes=30_000)
    golden = np.load(GOLDENS / "qwen3_untied.npz")
    scores = [
        np.asarray(vsr_jax.token_logprobs(*load_model(d), golden["tokens"], golden["length"]))
        for d in (GOLDENS / "qwen3_untied", tmp_path / "out")
    ]
    np.testing.assert_array_equal(*scores)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]
