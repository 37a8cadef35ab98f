"""The TPU compiler on the decode chunk of a small model whose cache outweighs it, as benchmarks/aot_decode.py does."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "max_position_embeddings": 16384,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("topology", "length"),
    [
        ("v5e:2x2", 8192),  # a layer's keys are larger than a chip's on-core memory, as those of a large model are
        ("v6e:2x2", 2048),  # they would fit: moving them in and out whole takes 1.24 times the bytes
    ],
)
def test_a_decode_step_on_a_tpu_moves_little_more_than_it_must(tmp_path, topology: str, length: int) -> None:
    if find_spec("libtpu") is None:
        pytest.skip("the TPU compiler is not installed: pip install libtpu (Linux only)")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    script = Path(__file__).resolve().parent.parent / "benchmarks" / "aot_decode.py"
    sizes = ["--topology", topology, "--mesh", "data=4", "--slots", "128", "--length", str(length), "--json"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "TPU", "XLA"))}
    run = subprocess.run(
        [sys.executable, script, "--model", tmp_path, *sizes],
        capture_output=True,
        text=True,
        env={**environment, "JAX_PLATFORMS": "cpu"},
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["fits"]
    assert found["temp_gib"] <= 0.05 * found["kv_gib"]
    assert found["bytes_ratio"] <= 1.10
