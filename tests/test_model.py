"""The decoder against recorded outputs of the reference implementation, and its passes against each other."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vsr_jax
from vsr_jax.errors import UserError
from vsr_jax.model import checkpoint_io, transformer
from vsr_jax.model.config import parse_config, read_config
from vsr_jax.model.params import init_params, lookup, param_specs
from vsr_jax.scoring import chunked

GOLDENS = Path(__file__).parent / "goldens"
NAMES = ("qwen2", "qwen3_tied", "qwen3_untied", "llama")


def load(name: str):
    directory = GOLDENS / name
    config = parse_config(read_config(directory / "config.json"), where=name)
    config, params = checkpoint_io.load_params(config, directory, dtype="float32")
    return config, params, dict(np.load(GOLDENS / f"{name}.npz"))


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_and_every_log_probability_equal_the_reference(name: str) -> None:
    config, params, golden = load(name)
    real = np.arange(golden["tokens"].shape[1]) < golden["length"][:, None]
    hidden = transformer.hidden_states(config, params, golden["tokens"], every_layer=True)
    for layer, expected in enumerate([*golden["hidden"], golden["final"]]):
        np.testing.assert_allclose(np.asarray(hidden[layer])[real], expected[real], atol=1e-4, err_msg=f"state {layer}")
    logp = jax.nn.log_softmax(transformer.logits(config, params, hidden[-1]), axis=-1)
    np.testing.assert_allclose(np.asarray(logp)[real], golden["log_probs"][real], atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_token_logprobs_pick_the_next_token_and_ignore_padding(name: str) -> None:
    config, params, golden = load(name)
    tokens, length = golden["tokens"], golden["length"]
    expected = np.take_along_axis(golden["log_probs"][:, :-1], tokens[:, 1:, None], axis=2)[..., 0]
    valid = np.arange(1, tokens.shape[1]) < length[:, None]
    got = np.asarray(vsr_jax.token_logprobs(config, params, tokens, length))
    np.testing.assert_allclose(got, np.where(valid, expected, 0), atol=1e-4)
    noise = np.where(np.arange(tokens.shape[1]) < length[:, None], tokens, 7)
    np.testing.assert_array_equal(np.asarray(vsr_jax.token_logprobs(config, params, noise, length)), got)


@pytest.mark.parametrize("name", NAMES)
def test_left_padding_and_packing_change_nothing(name: str) -> None:
    config, params, golden = load(name)
    tokens, length = golden["tokens"], golden["length"]
    right = np.asarray(vsr_jax.token_logprobs(config, params, tokens, length))
    width = tokens.shape[1]
    left = np.zeros_like(tokens)
    segments = np.zeros_like(tokens)
    for i, n in enumerate(length):
        left[i, width - n :], segments[i, width - n :] = tokens[i, :n], 1
    positions = np.maximum(np.cumsum(segments, axis=1) - 1, 0)
    got = np.asarray(vsr_jax.token_logprobs(config, params, left, positions=positions, segments=segments))
    for i, n in enumerate(length):
        np.testing.assert_allclose(got[i, width - n :], right[i, : n - 1], atol=1e-5)
    packed = np.concatenate([tokens[i, :n] for i, n in enumerate(length)])[None]
    number = np.concatenate([np.full(n, i + 1) for i, n in enumerate(length)])[None]
    place = np.concatenate([np.arange(n) for n in length])[None]
    got = np.asarray(vsr_jax.token_logprobs(config, params, packed, positions=place, segments=number))[0]
    starts = np.cumsum([0, *length[:-1]])
    for i, n in enumerate(length):
        np.testing.assert_allclose(got[starts[i] : starts[i] + n - 1], right[i, : n - 1], atol=1e-5)
        if i:
            assert got[starts[i] - 1] == 0  # the seam between two texts predicts nothing


def test_long_rows_are_scored_in_query_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    config, params, golden = load("qwen3_untied")
    tokens, segments = golden["tokens"], np.repeat([[1] * 6 + [2] * (golden["tokens"].shape[1] - 6)], 4, axis=0)
    whole = transformer.hidden_states(config, params, tokens, segments=segments)
    monkeypatch.setattr("vsr_jax.model.attention.QUERY_BLOCK", 4)
    np.testing.assert_allclose(transformer.hidden_states(config, params, tokens, segments=segments), whole, atol=1e-5)
    np.testing.assert_allclose(
        transformer.hidden_states(config, params, tokens),
        load_states_without_blocks(config, params, tokens, monkeypatch),
        atol=1e-5,
    )


def load_states_without_blocks(config, params, tokens, monkeypatch):
    monkeypatch.setattr("vsr_jax.model.attention.QUERY_BLOCK", 512)
    return transformer.hidden_states(config, params, tokens)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("remat", [False, True])
def test_grouped_pass_equals_whole_sequences_in_value_and_gradient(name: str, remat: bool) -> None:
    config, params, _ = load(name)
    rng = np.random.default_rng(0)
    prompt_length = np.array([3, 5])
    prompt = rng.integers(0, config.vocab_size, (2, 5)).astype(np.int32)
    response = rng.integers(0, config.vocab_size, (2, 3, 4)).astype(np.int32)

    def grouped(params):
        hidden = transformer.grouped_hidden_states(config, params, prompt, prompt_length, response, remat=remat)
        return chunked(
            config, params, hidden, response, lambda z, t: jax.nn.log_softmax(z)[jnp.arange(len(t)), t], chunk=5
        )

    def whole(params):
        rows = np.zeros((6, 9), np.int32)
        for i in range(6):
            text = [*prompt[i // 3, : prompt_length[i // 3]], *response[i // 3, i % 3]]
            rows[i, : len(text)] = text
        logp = vsr_jax.token_logprobs(config, params, rows)
        return jnp.stack([logp[i, n - 1 : n + 3] for i, n in enumerate(np.repeat(prompt_length, 3))]).reshape(2, 3, 4)

    weight = rng.normal(size=(2, 3, 4))
    np.testing.assert_allclose(jax.jit(grouped)(params), jax.jit(whole)(params), atol=1e-5)
    a, b = (jax.jit(jax.grad(lambda p, f=f: (f(p) * weight).sum()))(params) for f in (grouped, whole))
    scale = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(b))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5 * scale), a, b)


def test_yarn_equals_the_reference() -> None:
    golden = dict(np.load(GOLDENS / "qwen2.npz"))
    raw = read_config(GOLDENS / "qwen2" / "config.json")
    raw["rope_scaling"] = json.loads(str(golden["yarn_rope_scaling"]))
    config = parse_config(raw)
    assert config.yarn is not None
    config, params = checkpoint_io.load_params(config, GOLDENS / "qwen2", dtype="float32")
    hidden = transformer.hidden_states(config, params, golden["tokens"])
    logp = jax.nn.log_softmax(transformer.logits(config, params, hidden), axis=-1)
    real = np.arange(golden["tokens"].shape[1]) < golden["length"][:, None]
    np.testing.assert_allclose(np.asarray(logp)[real], golden["log_probs_yarn"][real], atol=1e-4)


def test_padded_vocabulary_rows_have_no_probability_when_scoring() -> None:
    config, params, golden = load("qwen2")
    cut = dataclasses.replace(config, num_tokens=config.vocab_size - 20)
    hidden = transformer.hidden_states(config, params, golden["tokens"])
    z = transformer.logits(cut, params, hidden)
    assert np.all(np.asarray(z)[..., cut.num_tokens :] == -np.inf)
    expected = jax.nn.log_softmax(transformer.logits(config, params, hidden)[..., : cut.num_tokens], axis=-1)
    np.testing.assert_allclose(jax.nn.log_softmax(z, axis=-1)[..., : cut.num_tokens], expected, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_saved_model_reloads_to_the_same_bits(name: str, tmp_path: Path) -> None:
    config, params, _ = load(name)
    checkpoint_io.save_model(config, params, tmp_path / "out")
    again, reloaded = vsr_jax.load_model(tmp_path / "out")
    assert again == config
    for spec in param_specs(config):
        np.testing.assert_array_equal(lookup(reloaded, spec), lookup(params, spec))


def test_bfloat16_round_trip_is_exact_and_scores_stay_close(tmp_path: Path) -> None:
    config, params, golden = load("qwen3_tied")
    small = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    checkpoint_io.save_model(config, small, tmp_path, dtype="bfloat16")
    config16, again = vsr_jax.load_model(tmp_path, dtype="bfloat16")
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), again, small)
    low = vsr_jax.token_logprobs(config16, again, golden["tokens"], golden["length"])
    high = vsr_jax.token_logprobs(config, params, golden["tokens"], golden["length"])
    assert low.dtype == jnp.float32
    np.testing.assert_allclose(low, high, atol=0.15)


def test_table_initialises_what_the_loader_loads() -> None:
    for name in NAMES:
        config, params, _ = load(name)
        fresh = init_params(config, jax.random.key(0))
        assert jax.tree.map(jnp.shape, fresh) == jax.tree.map(jnp.shape, params)


def write_config(tmp_path: Path, **changes: object) -> Path:
    raw = read_config(GOLDENS / "qwen2" / "config.json")
    raw.update(changes)
    for key in [k for k, v in raw.items() if v == "DROP"]:
        del raw[key]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    (tmp_path / "model.safetensors").write_bytes((GOLDENS / "qwen2" / "model.safetensors").read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "unknown model_type 'gpt2'"),
        ({"hidden_size": "DROP"}, "field hidden_size"),
        ({"hidden_size": "big"}, "field hidden_size"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope scaling of type 'linear'"),
        ({"intermediate_size": 24}, "has shape"),
        ({"num_hidden_layers": 9}, "is missing"),
        ({"num_hidden_layers": 1}, "unexpected tensor"),
        ({"model_type": "qwen3", "head_dim": 8}, "missing"),
    ],
)
def test_a_config_that_does_not_fit_is_one_clear_line(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        vsr_jax.load_model(write_config(tmp_path, **changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_directory_weights_shard_and_torn_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        vsr_jax.load_model(tmp_path / "nowhere")
    directory = write_config(tmp_path)
    (directory / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(UserError, match=r"model\.safetensors: not a readable"):
        vsr_jax.load_model(directory)
    (directory / "model.safetensors").unlink()
    with pytest.raises(UserError, match="neither"):
        vsr_jax.load_model(directory)
    index = {"weight_map": {"model.embed_tokens.weight": "model-00001-of-00001.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"model-00001-of-00001\.safetensors.*missing"):
        vsr_jax.load_model(directory)
