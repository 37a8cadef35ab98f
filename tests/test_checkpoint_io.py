"""Loading and saving: every tensor accounted for, heads tied or not, padded rows, shards, and host memory."""

import dataclasses
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models

import vsr_jax
from vsr_jax.errors import UserError
from vsr_jax.model import transformer, weight_files
from vsr_jax.model.checkpoint_io import expected_shapes, load_model, load_params, save_model
from vsr_jax.model.config import ModelConfig, parse_config, read_config
from vsr_jax.model.params import lookup, param_specs
from vsr_jax.sampling.types import SamplingParams

GOLDENS = Path(__file__).parent / "goldens"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

Tensors = dict[str, np.ndarray]


def copy(name: str, target: Path, *, edit: Callable[[Tensors], object] | None = None, **fields: object) -> Path:
    """A golden model as one file, with its tensors and config fields changed."""
    tensors: Tensors = {}
    for file in sorted((GOLDENS / name).glob("*.safetensors")):
        tensors |= load_file(file)
    if edit is not None:
        edit(tensors)
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    raw = {**read_config(GOLDENS / name / "config.json"), **fields}
    (target / "config.json").write_text(json.dumps(raw))
    return target


def scores(config: ModelConfig, params: dict) -> np.ndarray:
    tokens = np.arange(4, 16).reshape(2, 6)
    return np.asarray(vsr_jax.token_logprobs(config, params, tokens))


def assert_same(a: dict, b: dict) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), a, b)


def put(name: str, value: np.ndarray) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.__setitem__(name, value)


QUERY = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop(QUERY), f"tensor {QUERY} of shape (32, 32) is missing"),
        (lambda t: t.pop("model.norm.weight"), "tensor model.norm.weight of shape (32,) is missing"),
        (put("model.layers.3.mlp.up_proj.weight", np.zeros((40, 32), np.float32)), "unexpected tensor model.layers.3"),
        (put("model.layers.0.self_attn.o_proj.bias", np.zeros(32, np.float32)), "of shape (32,) (1 in all)"),
        (
            put(QUERY, np.zeros((32, 16), np.float32)),
            f"tensor {QUERY} has shape (32, 16), config.json asks for (32, 32)",
        ),
        (put(QUERY, np.zeros((1024,), np.float32)), "has shape (1024,), config.json asks for (32, 32)"),
        (put(QUERY, np.zeros((32, 32), np.int8)), f"tensor {QUERY} of shape (32, 32) has dtype I8"),
        (put(QUERY, np.zeros((32, 32), ml_dtypes.float8_e4m3fn)), "has dtype F8_E4M3; supported are F32, F16, BF16"),
        (put(QUERY, np.zeros((32, 32), np.float64)), "has dtype F64"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named_with_both_shapes(tmp_path: Path, edit, message: str) -> None:
    directory = copy("qwen2", tmp_path, edit=edit)
    with pytest.raises(UserError) as caught:
        load_model(directory)
    assert message in str(caught.value)
    assert str(directory) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_rotary_table_in_the_file_is_derived_and_not_read(tmp_path: Path) -> None:
    table = put("model.layers.0.self_attn.rotary_emb.inv_freq", np.zeros(4, np.float32))
    assert_same(load_model(copy("qwen2", tmp_path, edit=table))[1], load_model(GOLDENS / "qwen2")[1])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_stored_halves_keep_their_bits_or_widen_exactly(tmp_path: Path, dtype: type) -> None:
    def narrow(tensors: Tensors) -> None:
        tensors.update({name: value.astype(dtype) for name, value in tensors.items()})

    directory = copy("qwen2", tmp_path, edit=narrow)
    config = parse_config(read_config(directory / "config.json"))
    _, as_stored = load_params(config, directory)
    assert {x.dtype for x in jax.tree.leaves(as_stored)} == {np.dtype(dtype)}
    tensors = load_file(directory / "model.safetensors")
    np.testing.assert_array_equal(as_stored["layers"]["gate"][2], tensors["model.layers.2.mlp.gate_proj.weight"])
    assert_same(load_params(config, directory, dtype="float32")[1], jax.tree.map(np.float32, as_stored))


def test_mixed_dtypes_in_one_stack_need_a_choice(tmp_path: Path) -> None:
    directory = copy("qwen2", tmp_path, edit=lambda t: t.__setitem__(QUERY, t[QUERY].astype(np.float16)))
    config = parse_config(read_config(directory / "config.json"))
    with pytest.raises(UserError, match=r"layers\.0\.\S+ has dtype F32 but model\.layers\.1\.\S+ has F16"):
        load_params(config, directory)
    assert load_params(config, directory, dtype="float32")[1]["layers"]["q"].dtype == np.float32


def test_masters_may_be_wider_than_computing(tmp_path: Path) -> None:
    config, params = load_model(GOLDENS / "llama", "bfloat16", param_dtype="float32")
    assert config.dtype == "bfloat16"
    assert {x.dtype for x in jax.tree.leaves(params)} == {np.dtype(np.float32)}


# Four situations of a head, and what becomes of each.


def test_case_131_tied_without_a_stored_head_is_one_array_whose_gradients_add_up() -> None:
    config, params = load_model(GOLDENS / "qwen3_tied")
    assert config.tie_word_embeddings
    assert "lm_head" not in params
    untied = dataclasses.replace(config, tie_word_embeddings=False)
    loss = lambda config, params: vsr_jax.token_logprobs(config, params, jnp.arange(4, 16).reshape(2, 6)).sum()  # noqa: E731
    whole = jax.grad(lambda p: loss(config, p))(params)["embed"]
    parts = jax.grad(lambda p: loss(untied, p))({**params, "lm_head": params["embed"]})
    assert all(float(jnp.abs(parts[name]).max()) > 0.1 for name in ("embed", "lm_head"))
    np.testing.assert_allclose(whole, parts["embed"] + parts["lm_head"], atol=1e-4)


def test_case_131_untied_without_a_stored_head_is_an_error(tmp_path: Path) -> None:
    directory = copy("qwen3_tied", tmp_path, tie_word_embeddings=False)
    with pytest.raises(UserError, match=r"lm_head\.weight of shape \(80, 32\) is missing.*tie_word_embeddings"):
        load_model(directory)


def test_case_131_tied_with_an_equal_head_uses_the_embedding_and_says_so(tmp_path: Path, capsys) -> None:
    directory = copy("qwen3_tied", tmp_path, edit=lambda t: t.__setitem__(HEAD, t[EMBEDDING].copy()))
    config, params = load_model(directory)
    assert config.tie_word_embeddings
    assert_same(params, load_model(GOLDENS / "qwen3_tied")[1])
    note = capsys.readouterr().err
    assert note.startswith("note: ")
    assert "both are equal, the embedding is used" in note


def test_case_131_tied_with_another_head_is_untied_by_name(tmp_path: Path, capsys) -> None:
    def add_head(tensors: Tensors) -> None:
        tensors[HEAD] = tensors[EMBEDDING].copy()
        tensors[HEAD][-1, -1] += 1e-3  # the last number of the last piece

    directory = copy("qwen3_tied", tmp_path / "in", edit=add_head)
    config, params = load_model(directory)
    assert not config.tie_word_embeddings
    assert "which differs; the stored head is used" in capsys.readouterr().err
    tensors = load_file(directory / "model.safetensors")
    np.testing.assert_array_equal(params["lm_head"], tensors[HEAD])
    np.testing.assert_array_equal(params["embed"], tensors[EMBEDDING])
    save_model(config, params, tmp_path / "out")
    assert read_config(tmp_path / "out" / "config.json")["tie_word_embeddings"] is False
    again, reloaded = load_model(tmp_path / "out")
    np.testing.assert_array_equal(scores(again, reloaded), scores(config, params))


@pytest.mark.parametrize("shape", [(79, 32), (80, 16)])
def test_a_stored_head_of_another_shape_is_refused_though_tied(tmp_path: Path, shape: tuple[int, int]) -> None:
    directory = copy("qwen3_tied", tmp_path, edit=put(HEAD, np.zeros(shape, np.float32)))
    with pytest.raises(UserError) as caught:
        load_model(directory)
    assert f"lm_head.weight has shape {shape}, config.json asks for (80, 32)" in str(caught.value)


def test_heads_are_compared_to_the_last_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_files, "PIECE", 512)

    def add_head(tensors: Tensors) -> None:
        tensors[HEAD] = tensors[EMBEDDING].copy()
        tensors[HEAD][-1, 0] += 1e-3

    assert "lm_head" in load_model(copy("qwen3_tied", tmp_path, edit=add_head))[1]


# Case 124: rows of the vocabulary that are no tokens.


@pytest.fixture
def padded(tmp_path: Path) -> Path:
    """Sixteen rows, ten tokens; the padding rows would be the likeliest by far."""

    def cut(tensors: Tensors) -> None:
        for name in (EMBEDDING, HEAD):
            tensors[name] = tensors[name][:16].copy()
        tensors[HEAD][10:] *= 50

    directory = copy("qwen2", tmp_path / "padded", edit=cut, vocab_size=16)
    vocab = {f"t{i}": i for i in range(10)}
    Tokenizer(models.WordLevel(vocab, unk_token="t0")).save(str(directory / "tokenizer.json"))
    return directory


def test_case_124_padding_is_outside_both_distributions(padded: Path) -> None:
    config, params = load_model(padded)
    assert (config.vocab_size, config.num_tokens) == (16, 10)
    rollouts = vsr_jax.sample(config, params, [[1], [2, 3]], SamplingParams(n=200, max_tokens=8, temperature=2.0), 0)
    assert rollouts.tokens.max() < 10
    row = np.array([[2, 3, *rollouts.response(-1)]])
    scored = np.asarray(vsr_jax.token_logprobs(config, params, row))[0, 1:]
    np.testing.assert_allclose(scored, rollouts.logp[-1], atol=1e-5)
    z = transformer.logits(config, params, transformer.hidden_states(config, params, row))
    np.testing.assert_allclose(np.exp(jax.nn.log_softmax(z))[..., :10].sum(-1), 1, atol=1e-5)


def test_case_124_padding_counts_when_asked_for(padded: Path) -> None:
    config, params = load_model(padded, keep_padded_rows=True)
    assert config.num_tokens == 16
    rollouts = vsr_jax.sample(config, params, [[1]], SamplingParams(n=64, max_tokens=4), 0)
    assert (rollouts.tokens >= 10).any()
    z = transformer.logits(config, params, transformer.hidden_states(config, params, np.array([[1, 2]])))
    assert np.isfinite(np.asarray(z)).all()


def test_case_124_export_keeps_the_rows(padded: Path, tmp_path: Path) -> None:
    config, params = load_model(padded)
    save_model(config, params, tmp_path / "out")
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert tensors[EMBEDDING].shape == tensors[HEAD].shape == (16, 32)
    assert read_config(tmp_path / "out" / "config.json")["vocab_size"] == 16
    np.testing.assert_array_equal(tensors[HEAD][10:], load_file(padded / "model.safetensors")[HEAD][10:])


def test_a_tokenizer_beyond_the_embedding_is_refused(padded: Path) -> None:
    Tokenizer(models.WordLevel({"a": 0, "b": 16}, unk_token="a")).save(str(padded / "tokenizer.json"))
    with pytest.raises(UserError, match="the tokenizer has 17 ids but the embedding only 16 rows"):
        load_model(padded)


# Case 129: the context.


def test_case_129_beyond_the_context_is_an_error_unless_overridden_by_name(tmp_path: Path, capsys) -> None:
    directory = copy("qwen2", tmp_path / "in", max_position_embeddings=16)
    config, params = load_model(directory)
    with pytest.raises(UserError, match=r"rows of 17 tokens exceed the context of 16"):
        vsr_jax.token_logprobs(config, params, np.zeros((1, 17), np.int32))
    with pytest.raises(UserError, match=r"exceeds the context of 16"):
        vsr_jax.sample(config, params, [[1] * 9], SamplingParams(max_tokens=8), 0)
    assert capsys.readouterr().err == ""
    config, params = load_model(directory, max_position=32)
    assert "context of 32 tokens by override; config.json says 16" in capsys.readouterr().err
    assert vsr_jax.token_logprobs(config, params, np.zeros((1, 17), np.int32)).shape == (1, 16)
    save_model(config, params, tmp_path / "out")
    assert read_config(tmp_path / "out" / "config.json")["max_position_embeddings"] == 32


# Case 125: ends of a text, in a prompt and out of it.


def test_case_125_either_stop_id_ends_a_response_and_neither_ends_a_prompt() -> None:
    config, params = load_model(GOLDENS / "qwen2")
    prompts = [[5, 2, 6, 3], [7], [0, 0, 3]]  # 0 pads the batch, 2 and 3 end responses
    free = vsr_jax.sample(config, params, prompts, SamplingParams(n=64, max_tokens=12), 0)
    scored = vsr_jax.sample(config, params, prompts, SamplingParams(n=64, max_tokens=12, stop_ids=(2, 3)), 0)
    for row in range(len(free.tokens)):
        ends = np.flatnonzero(np.isin(free.tokens[row], (2, 3)))
        length = ends[0] + 1 if len(ends) else 12
        assert scored.response(row) == free.tokens[row, :length].tolist()
        text = np.array([[*prompts[scored.prompt_index[row]], *scored.response(row)]])
        if row % 32 == 0:
            got = np.asarray(vsr_jax.token_logprobs(config, params, text))[0, -length:]
            np.testing.assert_allclose(got, scored.logp[row, :length], atol=1e-4)
    last = [scored.response(row)[-1] for row in range(len(scored.tokens))]
    assert {2, 3} <= set(last)


# Files.


@pytest.mark.parametrize("limit", [1, 20_000, 60_000])
def test_shards_stay_below_the_limit_and_the_index_finds_every_tensor(tmp_path: Path, limit: int) -> None:
    config, params = load_model(GOLDENS / "qwen3_untied")
    save_model(config, params, tmp_path, max_shard_bytes=limit)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    shapes = expected_shapes(config)
    assert index["weight_map"].keys() == shapes.keys()
    assert index["metadata"]["total_size"] == sum(4 * math.prod(shape) for shape in shapes.values())
    files = sorted(tmp_path.glob("*.safetensors"))
    assert [f.name for f in files] == [f"model-{i + 1:05d}-of-{len(files):05d}.safetensors" for i in range(len(files))]
    for file in files:
        tensors = load_file(file)
        assert sum(x.nbytes for x in tensors.values()) <= limit or len(tensors) == 1
        assert {name for name, place in index["weight_map"].items() if place == file.name} == tensors.keys()
    assert not list(tmp_path.glob(".*"))
    again, reloaded = load_model(tmp_path)
    assert again == config
    assert_same(reloaded, params)


@pytest.mark.parametrize("name", ["qwen2", "qwen3_tied", "qwen3_untied", "llama"])
def test_bfloat16_comes_back_bit_for_bit_through_files(tmp_path: Path, name: str) -> None:
    config, params = load_model(GOLDENS / name, "bfloat16")
    save_model(config, params, tmp_path / "a", dtype="bfloat16", max_shard_bytes=30_000)
    save_model(*load_model(tmp_path / "a", "bfloat16"), tmp_path / "b", dtype="bfloat16", max_shard_bytes=30_000)
    first, second = ({f.name: f.read_bytes() for f in (tmp_path / d).iterdir()} for d in "ab")
    assert first == second
    again, reloaded = load_model(tmp_path / "b", "bfloat16")
    bits = lambda x: np.asarray(x).view(np.uint16)  # noqa: E731
    assert again == config
    for spec in param_specs(config):
        np.testing.assert_array_equal(bits(lookup(reloaded, spec)), bits(lookup(params, spec)))


def test_other_weights_in_the_directory_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    config, params = load_model(GOLDENS / "qwen2")
    save_model(config, params, tmp_path)
    save_model(config, params, tmp_path)  # the same files are replaced
    with pytest.raises(UserError, match=r"model\.safetensors: belongs to other weights"):
        save_model(config, params, tmp_path, max_shard_bytes=30_000)
    with pytest.raises(UserError, match="dtype 'float16' is not supported"):
        save_model(config, params, tmp_path, dtype="float16")


def test_extra_config_fields_stay_but_cannot_change_the_decoder(tmp_path: Path) -> None:
    config, params = load_model(GOLDENS / "qwen2")
    save_model(config, params, tmp_path, extra={"eos_token_id": [2, 3], "hidden_size": 7})
    raw = read_config(tmp_path / "config.json")
    assert (raw["eos_token_id"], raw["hidden_size"]) == ([2, 3], 32)


def test_one_file_is_read_before_shards_as_the_reference_does(tmp_path: Path) -> None:
    config, params = load_model(GOLDENS / "qwen3_untied")
    shutil.copytree(GOLDENS / "qwen3_untied", tmp_path, dirs_exist_ok=True)
    doubled = {**params, "embed": params["embed"] * 2}
    save_model(config, doubled, tmp_path / "single")
    shutil.copyfile(tmp_path / "single" / "model.safetensors", tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load_model(tmp_path)[1]["embed"], doubled["embed"])


SECOND = "model-00002-of-00002.safetensors"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.clear(), f"tensor {EMBEDDING} of shape (72, 24) is missing"),
        (lambda m: m.pop(HEAD), f"{SECOND}: holds tensor {HEAD}, which model.safetensors.index.json places in None"),
        (lambda m: m.update({EMBEDDING: SECOND}), f"holds tensor {EMBEDDING}"),
        (lambda m: m.update(ghost=SECOND), f"{SECOND}: lacks tensor ghost"),
        (lambda m: m.update({HEAD: "../qwen2/model.safetensors"}), "shard named in model.safetensors.index.json"),
        (lambda m: m.update({HEAD: 3}), "field weight_map must map tensor names to file names"),
    ],
)
def test_an_index_that_disagrees_with_its_shards_is_refused(tmp_path: Path, change, message: str) -> None:
    shutil.copytree(GOLDENS / "qwen3_untied", tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    change(index["weight_map"])
    file.write_text(json.dumps(index))
    with pytest.raises(UserError) as caught:
        load_model(tmp_path / "m")
    assert message in str(caught.value)


def test_a_shard_cut_short_is_named(tmp_path: Path) -> None:
    shutil.copytree(GOLDENS / "qwen3_untied", tmp_path / "m")
    shard = tmp_path / "m" / SECOND
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(UserError, match=rf"{SECOND}: not a readable safetensors file"):
        load_model(tmp_path / "m")


# Memory.

MEASURE = """
import math, resource, sys
from pathlib import Path
import jax, numpy as np
from vsr_jax.model.checkpoint_io import load_params
from vsr_jax.model.config import parse_config, read_config
directory = Path(sys.argv[1])
# Of this program's own memory: ru_maxrss would start from what the test runner held when it forked.
peak = lambda: 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
jax.block_until_ready(jax.device_put(np.zeros(16)))
config = parse_config(read_config(directory / "config.json"))
before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
_, params = load_params(config, directory, dtype=sys.argv[2])
print(peak() - before, sum(x.nbytes for x in jax.tree.leaves(params)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read in the units of Linux")
def test_loading_holds_no_second_copy(tmp_path: Path) -> None:
    """The bound of the 0.5B model, which 200 MB of slack would hide on a model quick enough for a test, scaled down."""
    raw = read_config(GOLDENS / "qwen3_tied" / "config.json")
    raw |= {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12, "vocab_size": 16384}
    config = parse_config(raw)
    rng = np.random.default_rng(0)
    block = rng.standard_normal(2**24, np.float32).astype(ml_dtypes.bfloat16)
    shapes = expected_shapes(config)
    save_file({n: block[: math.prod(s)].reshape(s) for n, s in shapes.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(raw))
    largest = 2 * max(math.prod(shape) for shape in shapes.values())
    slack = 80_000_000
    for dtype in ("bfloat16", "float32"):
        run = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path), dtype], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        used, held = map(int, run.stdout.split())
        assert held > 2 * (largest + slack), "a second copy would not be seen"
        assert used <= held + largest + slack
    (tmp_path / "model.safetensors").unlink()  # 340 MB that a failed run alone should leave behind
