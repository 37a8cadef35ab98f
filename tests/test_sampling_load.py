"""The sampler under load: folded prefixes, a ring that shrinks, memory, programs compiled ahead and kept."""

import dataclasses
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
from test_sampling import load

import vsr_jax
from vsr_jax.compilation import cache_folder, keep_compiled
from vsr_jax.errors import UserError
from vsr_jax.sampling import device, memory
from vsr_jax.sampling.device import decode_chunk, prefill, prefill_forced, resize
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.schedule import plan_layout
from vsr_jax.sampling.types import SamplingParams


def test_a_shared_prefix_is_run_with_the_prompt_and_changes_nothing() -> None:
    """Rows 0 to 2 of each prompt are forced alike; a fourth row that is not keeps the prefix out of the prefill."""
    config, params = load("qwen3_tied")
    prompts = [[1, 2, 3], [4], [5, 6]]
    sizes = (5, 0, 2)
    request = SamplingParams(n=3, max_tokens=12, temperature=0.8, top_p=0.9, stop_ids=(3,))
    forced = np.full((3, 4, 12), -1)
    for i, size in enumerate(sizes):
        forced[i, :3, :size] = np.arange(7, 7 + size)
    forced[0, 1, 9] = 11
    stats = []
    folded = sample(
        config, params, prompts, request, 1, forced_tokens=forced[:, :3].reshape(9, 12), on_stats=stats.append
    )
    four = dataclasses.replace(request, n=4)
    whole = sample(config, params, prompts, four, 1, forced_tokens=forced.reshape(12, 12), on_stats=stats.append)
    kept = np.arange(12).reshape(3, 4)[:, :3].ravel()
    for name in ("tokens", "length", "sampled", "finish_reason"):
        np.testing.assert_array_equal(getattr(folded, name), getattr(whole, name)[kept], err_msg=name)
    np.testing.assert_allclose(folded.logp, whole.logp[kept], atol=2e-5)
    np.testing.assert_allclose(folded.logp_behavior, whole.logp_behavior[kept], atol=2e-5)
    assert stats[0].tokens == folded.length.sum() - 3 * sum(sizes)
    assert stats[1].tokens == whole.length.sum()


def test_folding_leaves_the_end_of_a_response_to_the_decode_steps() -> None:
    config, params = load("qwen2")
    forced = np.array([[7, 8, 9, -1], [7, 3, 9, 5]])
    out = sample(config, params, [[1], [2]], SamplingParams(max_tokens=(3, 4), stop_ids=(3,)), 0, forced_tokens=forced)
    assert [out.response(0), out.response(1)] == [[7, 8, 9], [7, 3]]
    assert out.finish_reason.tolist() == [1, 0]
    assert not out.sampled.any()


def test_a_scan_of_forced_positions_compiles_once() -> None:
    config, params = load("qwen2")
    for function in (decode_chunk, prefill, prefill_forced):
        function.clear_cache()
    forced = np.full((14 * 2, 16), -1)
    for position in range(14):
        forced[2 * position : 2 * position + 2, : position + 1] = 5
    request = SamplingParams(n=2, max_tokens=16)
    sample(config, params, [[1 + i] for i in range(14)], request, 0, forced_tokens=forced, slots=4)
    assert (decode_chunk._cache_size(), prefill._cache_size(), prefill_forced._cache_size()) == (1, 0, 1)


def test_a_ring_that_shrinks_keeps_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long response among short ones, then short ones alone, against a teacher-forced pass."""
    config, params = load("qwen3_untied")
    config = dataclasses.replace(config, max_position=4096)
    limits = (150, *[40] * 5)
    prompts = [[1, 2, 3, 4]] + [[5 + i] for i in range(5)]
    small = lambda *args, **kwargs: dataclasses.replace(plan_layout(*args[:4], chunk=8), ring=32)  # noqa: E731
    monkeypatch.setattr("vsr_jax.sampling.sampler.plan_layout", small)
    sizes: list[int] = []
    resized = lambda config, state, ring: (sizes.append(ring), resize(config, state, ring))[1]  # noqa: E731
    monkeypatch.setattr("vsr_jax.sampling.sampler.resize", resized)
    out = sample(config, params, prompts, SamplingParams(max_tokens=limits), seed=0, slots=2)
    assert max(sizes) >= 128
    assert sizes[-1] <= 64
    for row in (0, 3, 5):
        whole = np.array([prompts[row] + out.response(row)], np.int32)
        expected = vsr_jax.token_logprobs(config, params, whole)[0, len(prompts[row]) - 1 :]
        np.testing.assert_allclose(out.logp[row, : out.length[row]], expected, atol=1e-4)


@pytest.mark.parametrize(("count", "n", "slots"), [(3, 4, 64), (40, 8, 64), (40, 8, 6), (1, 1, 1)])
def test_lanes_are_a_multiple_of_the_shards_they_are_split_over(count: int, n: int, slots: int) -> None:
    plain = plan_layout([5] * count, n, 32, slots)
    for shards in (1, 2, 4):
        layout = plan_layout([5] * count, n, 32, slots, shards=shards)
        assert layout.lanes % shards == 0
        assert abs(layout.lanes - plain.lanes) < shards
        assert layout.group == plain.group


def test_slots_beyond_memory_are_refused_before_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    config, params = load("qwen2")
    decode_chunk.clear_cache()
    prompts, request = [[1]] * 40, SamplingParams(n=4, max_tokens=50)
    fits = memory.call_bytes(config, plan_layout([1] * 40, 4, 50, 24), 50)
    weights = memory.param_count(config) * np.dtype(config.dtype).itemsize
    monkeypatch.setattr(memory, "free_bytes", lambda device: weights + fits)
    assert memory.slots_that_fit(config, [1] * 40, 4, 50, fits, at_most=64) == 24
    with pytest.raises(UserError, match=r"64 slots of up to 50 tokens need .* 24 slots fit; lower slots"):
        sample(config, params, prompts, request, 0, slots=64, prompt_ids=range(40))
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with pytest.raises(UserError, match="not even 1 slot fits"):
        sample(config, params, prompts, request, 0, slots=64)
    assert decode_chunk._cache_size() == 0
    assert memory.slots_that_fit(config, [1] * 40, 4, 50, 1000) == 0


def test_a_compiler_gets_the_options_of_tpus_only_where_it_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/test_aot_decode.py compiles with them; the CPU's compiler is one that does not know them."""
    assert device.decode_program("cpu") is decode_chunk
    assert device.decode_program("tpu") is decode_chunk
    monkeypatch.setattr(device, "_probe_tpu", lambda: None)
    assert device.decode_program("tpu") is device._decode_chunk_tpu
    assert device.decode_program("cpu") is decode_chunk


def test_what_is_compiled_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    config, params = load("qwen2")
    monkeypatch.setattr("vsr_jax.sampling.sampler._NOTABLE", 0.0)
    said: list[str] = []
    request = SamplingParams(n=2, max_tokens=5)
    sample(config, params, [[1], [2]], request, 0, on_compile=lambda what, seconds: said.append(what))
    assert said == ["prefill", "decode"]
    with caplog.at_level(logging.INFO, logger="vsr_jax"):
        sample(config, params, [[1], [2]], request, 0)
    assert [record.message.split(" compiled")[0] for record in caplog.records] == said


def test_the_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("VSR_COMPILATION_CACHE", "off")
    assert keep_compiled() is None
    monkeypatch.setenv("VSR_COMPILATION_CACHE", "")
    if sys.platform == "linux":
        assert cache_folder() == tmp_path / "vsr_jax" / "programs"
    monkeypatch.setenv("VSR_COMPILATION_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    assert keep_compiled() is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VSR_COMPILATION_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    with pytest.raises(UserError, match=r"VSR_COMPILATION_CACHE=.*below"):
        keep_compiled()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_a_second_process_finds_its_programs(tmp_path) -> None:
    script = (
        "from vsr_jax.compilation import keep_compiled; keep_compiled()\n"
        "import jax\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"
        "hits = []\n"
        "jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))\n"
        "jax.jit(lambda x: x * 3)(1.0)\n"
        "print(sum('cache_hits' in event for event in hits))\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
    environment = {**kept, "VSR_COMPILATION_CACHE": str(tmp_path / "programs"), "JAX_PLATFORMS": "cpu"}
    run = lambda: subprocess.run(  # noqa: E731
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert int(run().stdout) == 0
    assert int(run().stdout) >= 1
