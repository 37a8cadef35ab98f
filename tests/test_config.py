"""`config.json`: every field that changes the function is honoured or refused, and absent ones mean what they say."""

import json
from pathlib import Path

import pytest

from vsr_jax.errors import UserError
from vsr_jax.model.config import Yarn, parse_config, read_config, to_hf_config
from vsr_jax.model.presets import PRESETS, preset
from vsr_jax.model.rope import inverse_frequencies

GOLDENS = Path(__file__).parent / "goldens"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
DROP = object()


def fields(name: str, **changes: object) -> dict:
    raw = {**preset(name), **changes}
    return {key: value for key, value in raw.items() if value is not DROP}


QWEN2, QWEN3 = "Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B-Base"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": DROP}, "unknown model_type None; supported are qwen2, qwen3, llama"),
        ({"model_type": "qwen3_moe"}, "unknown model_type 'qwen3_moe'"),
        ({"hidden_act": "gelu_new"}, "field hidden_act is 'gelu_new'"),
        ({"use_sliding_window": True}, "field use_sliding_window is True"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "field layer_types"),
        ({"mlp_bias": True}, "field mlp_bias"),
        ({"partial_rotary_factor": 0.5}, "field partial_rotary_factor is 0.5"),
        ({"quantization_config": {"quant_method": "fp8"}}, "field quantization_config"),
        ({"is_encoder_decoder": True}, "field is_encoder_decoder"),
        ({"tie_word_embeddings": "false"}, "field tie_word_embeddings must be true or false, found 'false'"),
        ({"attention_bias": 1}, "field attention_bias must be true or false"),
        ({"hidden_size": DROP}, "field hidden_size must be a positive int, found None"),
        ({"hidden_size": 896.5}, "field hidden_size"),
        ({"hidden_size": True}, "field hidden_size"),
        ({"num_hidden_layers": 0}, "field num_hidden_layers"),
        ({"vocab_size": float("inf")}, "field vocab_size"),
        ({"rms_norm_eps": DROP}, "field rms_norm_eps must be a positive float"),
        ({"rms_norm_eps": float("nan")}, "field rms_norm_eps"),
        ({"max_position_embeddings": DROP}, "field max_position_embeddings"),
        ({"num_key_value_heads": DROP}, "field num_key_value_heads"),
        ({"num_key_value_heads": 3}, "num_attention_heads 14 is not a multiple of num_key_value_heads 3"),
        ({"head_dim": 63}, "head_dim 63 is odd"),
        ({"num_attention_heads": 12}, "hidden_size 896 is not a multiple of num_attention_heads 12; give head_dim"),
        ({"rope_theta": DROP}, "field rope_theta is missing"),
        ({"rope_theta": "1e6"}, "field rope_theta must be a positive float, found '1e6'"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "field rope_theta has two values"),
        ({"rope_scaling": "yarn"}, "field rope_scaling must be an object"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope scaling of type 'linear' is not supported"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "type 'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "type 'llama3'"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "type 'longrope'"),
        ({"rope_scaling": YARN, "rope_parameters": {"rope_theta": 1e6}}, "name different kinds"),
        ({"rope_scaling": {**YARN, "truncate": False}}, "yarn fields mscale"),
        ({"rope_scaling": {**YARN, "mscale": 0.7}}, "yarn fields mscale"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "yarn scaling needs the field factor"),
        ({"rope_scaling": {**YARN, "factor": "4"}}, "field factor of rope_scaling must be a positive float"),
        ({"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ],
)
def test_what_this_decoder_does_not_compute_is_refused_by_name(changes: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config(fields(QWEN2, **changes), where="some/config.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("some/config.json: ")


def test_fields_that_are_off_or_of_no_effect_are_accepted() -> None:
    config = parse_config(fields(QWEN2))
    harmless = {
        "sliding_window": 32768,
        "max_window_layers": 21,
        "attention_dropout": 0.0,
        "use_cache": True,
        "initializer_range": 0.02,
        "layer_types": ["full_attention"] * 24,
        "mlp_bias": False,
        "rope_scaling": None,
        "partial_rotary_factor": 1.0,
        "transformers_version": "4.40.1",
    }
    assert parse_config(fields(QWEN2, **harmless)) == config


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        (QWEN2, {}, {"qkv_bias": True, "o_bias": False, "qk_norm": False, "head_dim": 64}),
        (QWEN3, {}, {"qkv_bias": False, "o_bias": False, "qk_norm": True, "head_dim": 128}),
        (QWEN3, {"attention_bias": True}, {"qkv_bias": True, "o_bias": True}),
        (QWEN3, {"head_dim": DROP}, {"head_dim": 128}),  # the default of the reference, not 1024 / 16
        (QWEN2, {"head_dim": 32}, {"head_dim": 32}),
        (QWEN2, {"num_key_value_heads": None}, {"num_kv_heads": 14}),
        (QWEN2, {"model_type": "llama", "num_key_value_heads": DROP}, {"num_kv_heads": 14, "qkv_bias": False}),
        (QWEN2, {"model_type": "llama", "attention_bias": True}, {"qkv_bias": True, "o_bias": True}),
        (QWEN2, {"tie_word_embeddings": DROP}, {"tie_word_embeddings": False}),
        (QWEN2, {"rms_norm_eps": 1e-5}, {"rms_norm_eps": 1e-5}),
        (QWEN2, {"rope_theta": DROP, "rope_parameters": {"rope_theta": 5e5}}, {"rope_theta": 5e5}),
    ],
)
def test_fields_are_honoured(name: str, changes: dict, expected: dict) -> None:
    config = parse_config(fields(name, **changes))
    assert {key: getattr(config, key) for key in expected} == expected


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
def test_yarn_is_read_from_both_spellings(spelling: str) -> None:
    config = parse_config(fields(QWEN2, **{spelling: {**YARN, "beta_fast": 16, "attention_factor": 1.5}}))
    assert config.yarn == Yarn(4.0, 32768, beta_fast=16.0, beta_slow=1.0, attention_factor=1.5)
    assert parse_config(to_hf_config(config)) == config


def test_yarn_without_an_original_context_takes_the_stated_one_not_the_override() -> None:
    raw = fields(QWEN2, rope_scaling={"type": "yarn", "factor": 2.0})
    config = parse_config(raw, max_position=65536)
    assert config.yarn is not None
    assert (config.yarn.original_max_position, config.max_position) == (32768, 65536)


def test_case_129_rotary_base_and_context_come_from_the_file() -> None:
    slow, fast = (parse_config(preset(f"Qwen/Qwen2.5{name}")) for name in ("-Math-7B", "-7B"))
    assert (slow.rope_theta, fast.rope_theta) == (1e4, 1e6)
    # The slowest pair of dimensions: a hard-coded base would be off by two orders of magnitude.
    assert inverse_frequencies(slow)[0][-1] / inverse_frequencies(fast)[0][-1] > 50
    assert parse_config(preset("Qwen/Qwen2.5-Math-7B"), max_position=32768).max_position == 32768


@pytest.mark.parametrize("value", [0, -1, 4096.5, True, "32768"])
def test_a_context_override_that_is_no_length_is_refused(value: object) -> None:
    with pytest.raises(UserError, match="context override max_position must be a positive int"):
        parse_config(fields(QWEN2), max_position=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*PRESETS, "golden qwen2", "golden qwen3_tied", "golden qwen3_untied", "golden llama"])
def test_what_is_written_reads_back_to_the_same_decoder(name: str) -> None:
    raw = read_config(GOLDENS / name.split()[1] / "config.json") if name.startswith("golden") else preset(name)
    config = parse_config(raw)
    assert parse_config(json.loads(json.dumps(to_hf_config(config)))) == config


@pytest.mark.parametrize(("text", "message"), [("{", "not valid JSON"), ("[1]", "expected a JSON object, found list")])
def test_a_file_that_is_no_object_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_config(file)
    assert str(file) in str(caught.value)
