"""`vsr inspect`: facts of a model, and every place where it is not what its config or its hub page says."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, models

from vsr_jax.data import micro
from vsr_jax.errors import UserError
from vsr_jax.model.params import param_count
from vsr_jax.model.presets import PRESETS, closest_preset, preset
from vsr_jax.study.inspect_command import inspect_model
from vsr_jax.study.pretrain import micro_config

GOLDENS = Path(__file__).parent / "goldens"
BASE = Path(micro.__file__).parent / "base"


def facts(text: str) -> dict[str, list[str]]:
    """Lines by their first column."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, fact = re.split(r" {2,}", line, maxsplit=1)
        found.setdefault(name, []).append(fact)
    return found


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """The golden qwen2 with six rows beyond a tokenizer whose end is not the config's."""
    directory = tmp_path / "m"
    shutil.copytree(GOLDENS / "qwen2", directory)
    tokenizer = Tokenizer(models.WordLevel({f"t{i}": i for i in range(80)}, unk_token="t0"))
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True), AddedToken("<|im_end|>", special=True)])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    return directory


def edit_config(directory: Path, **fields: object) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_the_shipped_policy_is_described_and_deviates_in_nothing() -> None:
    told = facts(inspect_model(BASE))
    count = param_count(micro_config())
    assert told["architecture"][0].startswith("qwen3: 2 layers, hidden 96, feed-forward 320")
    assert told["attention"] == ["4 heads, 4 key-value heads, head size 24; norm on queries and keys"]
    assert told["context"] == ["128 tokens"]
    assert told["parameters"][0].startswith(f"{count:,}; ")
    assert told["output head"] == ["tied to the embedding"]
    assert told["stored"][0].startswith("24 tensors, F32, ")
    assert told["memory float32"][0].startswith(f"weights {4 * count / 1e6:.2f} MB; ")
    assert told["memory bfloat16"][0].startswith(f"weights {2 * count / 1e3:.1f} kB; ")
    assert told["memory training"][0].startswith(f"{16 * count / 1e6:.2f} MB: ")
    assert told["stop set"] == ["1 <eos>"]
    assert told["chat template"][0].startswith("yes")
    assert told["deviation"] == ["none"]


def test_every_source_of_the_stop_set_and_the_padding_rows_are_named(changed: Path) -> None:
    told = facts(inspect_model(changed))
    assert told["stop set"] == ["2 t2, 3 t3, 80 <|endoftext|>, 81 <|im_end|>"]
    assert told["tokenizer"] == ["82 ids for 88 rows of the vocabulary"]
    assert told["deviation"] == [
        "rows 82 to 87 of the vocabulary are no tokens: they are never sampled and count in no softmax, on either side",
        "responses also end at 3 t3, 80 <|endoftext|>, 81 <|im_end|>, which config.json does not name",
        "responses also end at 80 <|endoftext|>, 81 <|im_end|>, which generation_config.json does not name",
    ]


def test_overrides_dtypes_and_idle_fields_are_deviations(changed: Path) -> None:
    edit_config(changed, torch_dtype="bfloat16", attention_dropout=0.1, auto_map={"AutoModel": "mine.Mine"})
    told = facts(inspect_model(changed, max_position=4096))
    assert told["context"] == ["4,096 tokens"]
    assert told["deviation"][:4] == [
        "context of 4,096 tokens by override; config.json says 64",
        "attention_dropout 0.1 is not applied in training",
        "auto_map names code in the repository, which is never run",
        "weights are stored as float32; config.json says bfloat16",
    ]


def test_a_stored_head_that_differs_is_a_deviation(tmp_path: Path) -> None:
    shutil.copytree(GOLDENS / "qwen3_tied", tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, file)
    told = facts(inspect_model(tmp_path / "m"))
    assert told["output head"] == ["its own matrix, 2,560 parameters"]
    assert any("which differs; the stored head is used" in text for text in told["deviation"])


def test_fields_unlike_the_published_model_are_listed(tmp_path: Path) -> None:
    fields = {**preset("Qwen/Qwen2.5-Math-7B"), "max_position_embeddings": 32768, "eos_token_id": 151645}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    told = facts(inspect_model(tmp_path))
    assert told["rotary"] == ["base 10,000, no scaling"]
    assert told["tokenizer"] == ["none in the directory"]
    assert told["deviation"] == [
        "eos_token_id is 151645; Qwen/Qwen2.5-Math-7B has 151643",
        "max_position_embeddings is 32768; Qwen/Qwen2.5-Math-7B has 4096",
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_its_own_closest_and_needs_no_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert closest_preset(preset(name)) == name

    def offline(*args, **options):
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    told = facts(inspect_model(name))
    assert told["model"] == [f"{name}, from the sizes that ship with vsr-jax; its files were not read"]
    assert told["deviation"] == ["unknown without the files"]


def test_a_hub_model_is_described_without_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    fields = {**preset("Qwen/Qwen3-8B"), "rope_theta": 5e6}
    (tmp_path / commit).mkdir()
    (tmp_path / commit / "config.json").write_text(json.dumps(fields))
    asked: list[list[str]] = []

    def download(repo_id: str, *, revision: str | None, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(tmp_path / commit)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    told = facts(inspect_model("Qwen/Qwen3-8B"))
    assert told["model"] == [f"Qwen/Qwen3-8B at {commit}"]
    assert told["deviation"] == ["rope_theta is 5000000.0; Qwen/Qwen3-8B has 1000000.0"]
    assert "*.json" in asked[0]
    assert "*.safetensors" not in asked[0]


def test_a_checkpoint_that_would_not_load_is_refused(changed: Path) -> None:
    edit_config(changed, intermediate_size=24)
    with pytest.raises(UserError, match=r"gate_proj\.weight has shape \(40, 32\), config\.json asks for \(24, 32\)"):
        inspect_model(changed)
    edit_config(changed, intermediate_size=40)
    (changed / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="not a readable tokenizer"):
        inspect_model(changed)


def test_more_ids_than_rows_are_refused(changed: Path) -> None:
    Tokenizer(models.WordLevel({"a": 0, "b": 88}, unk_token="a")).save(str(changed / "tokenizer.json"))
    with pytest.raises(UserError, match="the tokenizer has 89 ids but the embedding only 88 rows"):
        inspect_model(changed)


@pytest.mark.parametrize("name", ["no/such-model", "qwen9", "./nowhere"])
def test_an_unknown_model_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *a, **k: (_ for _ in ()).throw(OSError("no network"))
    )
    with pytest.raises(UserError, match=name):
        inspect_model(name)


def test_sizes_have_units() -> None:
    told = facts(inspect_model("qwen2.5-72b"))
    assert told["memory bfloat16"][0].startswith("weights 145.41 GB; cache 327.7 kB a token")
    assert np.isclose(72_706_203_648 * 2 / 1e9, 145.41, atol=0.005)
