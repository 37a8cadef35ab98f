"""What `vsr profile rollout` measures: the sampler on a plain workload, beside what the device can do."""

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vsr_jax.errors import UserError
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.model.transformer import unstack_layers
from vsr_jax.parallel.plan import GIB
from vsr_jax.parallel.rollout import own_mesh
from vsr_jax.parallel.rules import SAMPLER_RULES, rows_multiple
from vsr_jax.parallel.topology import CHIPS
from vsr_jax.sampling.device import make_state, prefill
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.schedule import Layout, plan_layout
from vsr_jax.sampling.types import Rollouts, SamplerStats, SamplingParams
from vsr_jax.study.plan_stages import pass_flops
from vsr_jax.study.policy import load_policy

TPU_KINDS = {"TPU v4": "v4", "TPU v5 lite": "v5e", "TPU v5e": "v5e", "TPU v5": "v5p", "TPU v5p": "v5p"}
TPU_KINDS |= {"TPU v6 lite": "v6e", "TPU v6e": "v6e"}
"""How devices call themselves."""

GPU_PEAKS = {
    "A100-SXM4-40GB": (312e12, 1555e9),
    "A100-SXM4-80GB": (312e12, 2039e9),
    "H100 80GB HBM3": (989e12, 3350e9),
    "H200": (989e12, 4800e9),
}
"""Dense bfloat16 FLOP/s and bytes/s, from NVIDIA's data sheets of these boards, by a part of the device's name."""


@dataclass(frozen=True, kw_only=True)
class ProfileSettings:
    """The fields of `vsr profile`, see there."""

    model: str
    trace: Path | None = None
    prompts: int = 8
    samples: int = 32
    prompt_length: int = 256
    max_tokens: int = 128
    stop: bool = False
    slots: int = 256
    top_p: float = 1.0
    dtype: str = "float32"
    mesh: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Peaks:
    """What one device can do: FLOP/s of matrix products, bytes/s of memory, and where the two figures come from."""

    flops: float
    bytes: float
    source: str


@dataclass(frozen=True)
class Profiled:
    """One profile. Seconds are of the second call, which compiles nothing; rates are of all devices together.

    Attributes:
      compile_s: of the first call, all programs.
      first_chunk_s: until the first tokens of all slots had come back, their prompts' prefills included.
      occupancy: share of slot-steps that made a token.
      flops, bytes: a second of decoding, counted from the model: what has to be computed and moved, no more.
      flops_share, bytes_share: of the device's peak.
    """

    device: str
    model: str
    slots: int
    compile_s: float
    seconds: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    step_ms: float
    first_chunk_s: float
    occupancy: float
    flops: float
    bytes: float
    flops_share: float
    bytes_share: float
    peaks: Peaks
    trace: str


def profile_rollout(settings: ProfileSettings, *, say: Callable[[str], None] = lambda text: None) -> Profiled:
    """Samples a workload of random prompts twice (a third time under the profiler), and times a prefill by itself.

    Raises:
      UserError: a model that cannot be read, or a workload that does not fit it.
    """
    if min(settings.prompts, settings.samples, settings.prompt_length, settings.max_tokens, settings.slots) < 1:
        raise UserError("vsr profile: prompts, samples, prompt-length, max-tokens and slots must be at least 1")
    mesh = own_mesh(settings.mesh)
    policy = load_policy(settings.model, dtype=settings.dtype, mesh=mesh, rules=SAMPLER_RULES)
    config = policy.config
    params = jax.block_until_ready(unstack_layers(config, policy.params))
    rng = np.random.default_rng(settings.seed)
    prompts = rng.integers(0, config.num_tokens, (settings.prompts, settings.prompt_length)).tolist()
    request = SamplingParams(
        settings.samples, settings.max_tokens, top_p=settings.top_p, stop_ids=policy.stop_ids if settings.stop else ()
    )
    compiled, found = [], []

    def on_compile(what: str, seconds: float) -> None:
        say(f"{what} compiled in {seconds:.1f} s")
        compiled.append(seconds)

    def call() -> Rollouts:
        return sample(
            config,
            params,
            prompts,
            request,
            settings.seed,
            slots=settings.slots,
            on_stats=found.append,
            on_compile=on_compile,
        )

    call()
    compile_s = sum(compiled)
    say("measuring")
    out, stats = call(), found[-1]
    asked = [settings.prompt_length] * settings.prompts
    shards = rows_multiple(mesh) if mesh else 1
    layout = plan_layout(asked, settings.samples, settings.max_tokens, settings.slots, shards=shards)
    with jax.set_mesh(mesh) if mesh else nullcontext():
        prefill_s = _prefill_seconds(config, params, layout, prompts[0])
    if settings.trace is not None:
        say(f"tracing into {settings.trace}")
        with jax.profiler.trace(str(settings.trace)):
            call()
    decode_s = max(stats.seconds - stats.prefills * prefill_s, 1e-9)
    flops, moved = decode_work(config, out, stats, layout)
    peaks = device_peaks(settings.dtype, mesh.size if mesh else 1)
    return Profiled(
        device=jax.devices()[0].device_kind,
        model=policy.name,
        slots=stats.slots,
        compile_s=compile_s,
        seconds=stats.seconds,
        prefill_tokens_per_s=settings.prompt_length / prefill_s,
        decode_tokens_per_s=stats.tokens / decode_s,
        step_ms=1e3 * decode_s / stats.steps,
        first_chunk_s=stats.first_token_s,
        occupancy=stats.occupancy,
        flops=flops / decode_s,
        bytes=moved / decode_s,
        flops_share=flops / decode_s / peaks.flops,
        bytes_share=moved / decode_s / peaks.bytes,
        peaks=peaks,
        trace=str(settings.trace or ""),
    )


def decode_work(config: ModelConfig, out: Rollouts, stats: SamplerStats, layout: Layout) -> tuple[float, float]:
    """FLOPs and bytes that the decode steps of these responses need.

    A step reads every matrix once, each live slot's own keys and values, and each lane's prompt once.
    """
    lengths = out.length.astype(float)
    asked = out.prompt_length[out.prompt_index].astype(float)
    own = float((lengths * (lengths - 1) / 2).sum())
    matrices, _ = pass_flops(config, 1, 1)
    seen = float((lengths * asked).sum()) + own
    flops = matrices * stats.tokens + 4.0 * config.num_layers * config.num_heads * config.head_dim * seen
    size = np.dtype(config.dtype).itemsize
    token = 2.0 * config.num_layers * config.num_kv_heads * config.head_dim * size
    shared = stats.steps * layout.lanes * float(out.prompt_length.mean())
    return flops, stats.steps * matrices / 2 * size + token * (own + shared)


def _prefill_seconds(config: ModelConfig, params: Params, layout: Layout, prompt: list[int]) -> float:
    """The fastest of three, on a state of the sampler's own shape."""
    state = make_state(config, layout.lanes, layout.prompts, layout.width, layout.group, layout.ring)
    tokens = np.zeros((1, layout.width), np.int32)
    tokens[0, : len(prompt)] = prompt
    one, best = np.ones(1, np.int32), np.inf
    for _ in range(4):
        began = time.monotonic()
        state = jax.block_until_ready(prefill(config, params, state, tokens, one * len(prompt), 0 * one, 0 * one))
        best = min(best, time.monotonic() - began)
    return float(best)


def device_peaks(dtype: str, count: int = 1) -> Peaks:
    """Published peaks of `count` devices, or of a CPU, measured ones: a matrix product and a copy, timed here."""
    kind = jax.devices()[0].device_kind
    chip = CHIPS.get(TPU_KINDS.get(kind, ""))
    if chip is not None:
        return Peaks(count * chip.flops, count * chip.hbm_bytes, f"published, {count} x {chip.name}")
    for name, (flops, rate) in GPU_PEAKS.items():
        if name in kind:
            return Peaks(count * flops, count * rate, f"published, {count} x {name}")
    size, copied = 2048, 2**26
    x = jnp.ones((size, size), dtype)
    y = jnp.ones(copied, jnp.float32)
    product = _fastest(jax.jit(lambda a: a @ a), x)
    copy = _fastest(jax.jit(lambda a: a + 1), y)
    return Peaks(2.0 * size**3 / product, 2.0 * y.nbytes / copy, f"measured here, {dtype} product and a copy")


def _fastest(function: Any, x: jax.Array) -> float:
    jax.block_until_ready(function(x))
    times = []
    for _ in range(3):
        began = time.monotonic()
        jax.block_until_ready(function(x))
        times.append(time.monotonic() - began)
    return min(times)


def as_json(found: Profiled) -> str:
    """One JSON object."""
    return json.dumps(asdict(found))


def table(found: Profiled) -> str:
    """Lines for people."""
    lines = {
        "device": found.device,
        "model": f"{found.model}, {found.slots} slots",
        "compile": f"{found.compile_s:.1f} s",
        "whole call": f"{found.seconds:.2f} s",
        "prefill": f"{found.prefill_tokens_per_s:,.0f} tokens/s",
        "decode": f"{found.decode_tokens_per_s:,.0f} tokens/s, {found.step_ms:.2f} ms a step",
        "first chunk back": f"{found.first_chunk_s:.2f} s",
        "slot occupancy": f"{found.occupancy:.1%}",
        "memory": f"{found.bytes / GIB:.2f} GiB/s, {found.bytes_share:.1%} of {found.peaks.bytes / GIB:.1f}",
        "compute": f"{found.flops / 1e9:,.1f} GFLOP/s, {found.flops_share:.1%} of {found.peaks.flops / 1e9:,.0f}",
        "peaks": found.peaks.source,
        "trace": found.trace or "none; give --trace FOLDER",
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines.items())
