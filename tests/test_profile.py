"""`vsr profile rollout` on the micro Base policy, and the names that a profile shows."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from test_sampling import load

from vsr_jax.data.micro import BASE
from vsr_jax.errors import UserError
from vsr_jax.model.transformer import unstack_layers
from vsr_jax.sampling.device import make_state, prefill
from vsr_jax.study.profile_command import ProfileSettings, profile_rollout


def test_a_profile_of_the_micro_policy(tmp_path) -> None:
    sizes = ["--prompts", "2", "--samples", "4", "--prompt-length", "9", "--max-tokens", "16", "--slots", "8"]
    trace = tmp_path / "trace"
    arguments = ["profile", "rollout", "--model", BASE, "--trace", trace, "--json", *sizes]
    # A process of its own: platforms are chosen before JAX starts.
    run = subprocess.run(
        [sys.executable, "-c", "from vsr_jax.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"},
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert (found["slots"], found["occupancy"]) == (8, 1.0)
    for name in ("seconds", "prefill_tokens_per_s", "decode_tokens_per_s", "first_chunk_s", "flops", "bytes"):
        assert found[name] > 0, name
    assert np.isclose(found["flops_share"], found["flops"] / found["peaks"]["flops"])
    assert list(trace.rglob("*.xplane.pb"))


def test_sizes_are_checked() -> None:
    with pytest.raises(UserError, match="at least 1"):
        profile_rollout(ProfileSettings(model=str(BASE), samples=0))


def test_scopes_name_prefill_layers_and_their_parts() -> None:
    config, params = load("qwen2")
    state = make_state(config, 1, 1, 8, 1, 16)
    params = jax.eval_shape(lambda p: unstack_layers(config, p), params)
    one = np.ones(1, np.int32)
    lowered = prefill.lower(config, params, state, np.ones((1, 8), np.int32), one, 0 * one, 0 * one)
    text = lowered.as_text(debug_info=True)
    for scope in ("prefill/layer/attention", "prefill/layer/mlp"):
        assert scope in text
