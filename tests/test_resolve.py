"""From a name to a model's files, and the published sizes."""

import json
import math
import os
import re
import subprocess
import sys

import pytest

from vsr_jax.errors import UserError
from vsr_jax.model.config import parse_config
from vsr_jax.model.params import param_specs
from vsr_jax.model.presets import PRESETS, preset
from vsr_jax.model.resolve import ModelFiles, resolve_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def fill(directory, *names):
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_text("{}")
    return directory


@pytest.fixture
def hub(monkeypatch):
    """Stands in for the hub: set `directory` or `error`, read the last `call`."""

    class Hub:
        directory = None
        error = None
        call = None

        def __call__(self, repo_id, **options):
            self.call = {"repo_id": repo_id, **options}
            if self.error:
                raise self.error
            assert self.directory is not None, "the hub was asked unexpectedly"
            return str(self.directory)

    hub = Hub()
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub)
    return hub


@pytest.mark.parametrize("weights", ["model.safetensors", "model.safetensors.index.json"])
def test_a_local_directory_never_asks_the_hub(tmp_path, hub, weights):
    directory = fill(tmp_path / "model", "config.json", weights)
    assert resolve_model(directory) == ModelFiles(directory, str(directory), None)
    assert hub.call is None


def test_a_directory_named_like_a_hub_id_comes_first(tmp_path, hub, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "Qwen" / "Qwen3-8B-Base", "config.json", "model.safetensors")
    files = resolve_model("Qwen/Qwen3-8B-Base")
    assert (files.source, files.revision, hub.call) == ("Qwen/Qwen3-8B-Base", None, None)


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    fill(tmp_path / "model", "config.json", "model.safetensors")
    assert resolve_model("~/model").directory == tmp_path / "model"


@pytest.mark.parametrize("asked", [None, "main", COMMIT])
def test_a_hub_snapshot_is_pinned_by_its_commit(tmp_path, hub, asked):
    hub.directory = fill(tmp_path / "snapshots" / COMMIT, "config.json", "model.safetensors")
    files = resolve_model("Qwen/Qwen3-8B-Base", revision=asked)
    assert files == ModelFiles(hub.directory, "Qwen/Qwen3-8B-Base", COMMIT)
    assert (hub.call["repo_id"], hub.call["revision"]) == ("Qwen/Qwen3-8B-Base", asked)


def test_only_safetensors_json_and_tokenizer_files_are_fetched(tmp_path, hub):
    from huggingface_hub.utils import filter_repo_objects

    hub.directory = fill(tmp_path / COMMIT, "config.json", "model.safetensors")
    resolve_model("owner/name")
    wanted = [
        "config.json",
        "generation_config.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
    ]
    unwanted = [
        "modeling_mine.py",
        "pytorch_model.bin",
        "model.gguf",
        "training_args.pt",
        "README.md",
        "original/params.json",
        "onnx/model.safetensors",
    ]
    patterns = {name: hub.call[name] for name in ("allow_patterns", "ignore_patterns")}
    assert list(filter_repo_objects(wanted + unwanted, **patterns)) == wanted


def test_a_hub_failure_is_one_line_naming_model_and_revision(hub):
    hub.error = OSError("401 Client Error.\n\nRepository Not Found")
    with pytest.raises(UserError) as caught:
        resolve_model("runs/typo", revision="v2")
    assert "runs/typo: no such directory" in str(caught.value)
    assert "'v2': 401 Client Error. Repository Not Found" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nowhere", "./no/where", "/no/where", "../up", "a/b/c", "https://hf.co/a/b", "a b/c"])
def test_a_missing_directory_is_named_without_asking_the_hub(hub, name):
    with pytest.raises(UserError, match=re.escape(f"{name}: no such directory, nor the form of a hub id")):
        resolve_model(name)
    assert hub.call is None


def test_what_a_directory_lacks_is_named(tmp_path, hub):
    fill(tmp_path / "empty")
    with pytest.raises(UserError, match=r"empty/config\.json: no such file"):
        resolve_model(tmp_path / "empty")
    fill(tmp_path / "bare", "config.json")
    with pytest.raises(UserError, match=r"bare: holds neither model\.safetensors nor"):
        resolve_model(tmp_path / "bare")
    fill(tmp_path / "pickled", "config.json", "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin is not read, convert the weights to safetensors"):
        resolve_model(tmp_path / "pickled")
    hub.directory = fill(tmp_path / COMMIT, "config.json")
    with pytest.raises(UserError, match=r"holds neither model\.safetensors"):
        resolve_model("owner/name")


def test_a_file_or_a_revision_of_a_local_directory_is_refused(tmp_path):
    directory = fill(tmp_path / "model", "config.json", "model.safetensors")
    with pytest.raises(UserError, match=r"config\.json: is a file"):
        resolve_model(directory / "config.json")
    with pytest.raises(UserError, match="has no revision; drop revision 'main'"):
        resolve_model(directory, revision="main")


def test_offline_uses_the_cache_and_says_what_it_lacks(tmp_path):
    """The real library with an empty network: its cache layout is what pins the commit."""
    repo = tmp_path / "hub" / "models--owner--name"
    fill(repo / "snapshots" / COMMIT, "config.json", "model.safetensors")
    fill(repo / "refs")
    (repo / "refs" / "main").write_text(COMMIT)
    script = (
        "from vsr_jax.errors import UserError\n"
        "from vsr_jax.model.resolve import resolve_model\n"
        "print(resolve_model('owner/name').revision)\n"
        "try: resolve_model('owner/other')\n"
        "except UserError as error: print(error)\n"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    commit, complaint = run.stdout.splitlines()
    assert commit == COMMIT
    assert complaint.startswith("owner/other: no such directory, and not available from the hub")
    assert "HF_HUB_OFFLINE" in complaint


# Total and non-embedding parameters in units of 10^9, as printed on the model cards (72B: on the card of Qwen2, whose
# shapes it shares). Some cards round and some cut, so the last digit may be one off.
CARDS = {
    "Qwen/Qwen2.5-0.5B": ("0.49", "0.36"),
    "Qwen/Qwen2.5-1.5B": ("1.54", "1.31"),
    "Qwen/Qwen2.5-7B": ("7.61", "6.53"),
    "Qwen/Qwen2.5-72B": ("72.71", "70.21"),
    "Qwen/Qwen3-0.6B": ("0.6", "0.44"),
    "Qwen/Qwen3-1.7B": ("1.7", "1.4"),
    "Qwen/Qwen3-4B": ("4.0", "3.6"),
    "Qwen/Qwen3-8B": ("8.2", "6.95"),
    "Qwen/Qwen3-14B": ("14.8", "13.2"),
    "Qwen/Qwen3-32B": ("32.8", "31.2"),
}


@pytest.mark.parametrize("name", CARDS)
def test_presets_have_the_published_parameter_counts(name):
    config = parse_config(preset(name))
    total = sum(math.prod(spec.shape) for spec in param_specs(config))
    embedding = config.vocab_size * config.hidden_size * (1 if config.tie_word_embeddings else 2)
    for count, card in zip((total, total - embedding), CARDS[name], strict=True):
        decimals = len(card.partition(".")[2])
        assert abs(count / 1e9 - float(card)) < 10**-decimals, (name, count)


def test_presets_of_one_size_differ_only_where_published():
    def differing(a, b):
        return {key for key in {*preset(a), *preset(b)} if preset(a).get(key) != preset(b).get(key)}

    math_fields = {"rope_theta", "max_position_embeddings"}
    for size in ("1.5B", "7B", "72B"):
        assert differing(f"Qwen/Qwen2.5-{size}", f"Qwen/Qwen2.5-Math-{size}") == math_fields
    for size in ("0.6B", "1.7B", "4B", "8B", "14B"):
        assert differing(f"Qwen/Qwen3-{size}", f"Qwen/Qwen3-{size}-Base") == {"max_position_embeddings", "eos_token_id"}


def test_case_129_the_math_family_rotates_by_another_base():
    config = parse_config(preset("Qwen/Qwen2.5-Math-7B"))
    assert (config.rope_theta, config.max_position) == (10_000.0, 4096)
    assert parse_config(preset("Qwen/Qwen2.5-7B")).rope_theta == 1_000_000.0


def test_case_127_head_size_is_given_or_derived():
    assert parse_config(preset("Qwen/Qwen3-0.6B-Base")).head_dim == 128  # not 1024 / 16
    assert parse_config(preset("Qwen/Qwen2.5-0.5B")).head_dim == 64


def test_presets_are_found_by_short_name_and_given_as_copies():
    fields = preset("qwen3-8b-base")
    assert fields == dict(PRESETS["Qwen/Qwen3-8B-Base"])
    fields["hidden_size"] = 1
    assert preset("QWEN/qwen3-8B-BASE")["hidden_size"] == 4096
    assert json.loads(json.dumps(preset("Qwen/Qwen3-32B")))["num_attention_heads"] == 64
    with pytest.raises(UserError, match=r"unknown model preset 'qwen9'; known are Qwen/Qwen2\.5-0\.5B"):
        preset("qwen9")
