"""What the stages of a study would take on accelerators: a closed form from published rates, without a device.

Per token that a copy of the weights decodes for S responses together, device-seconds are

    max((weight bytes / S + cache bytes) / memory rate, operations / compute rate),

which does not depend on how many devices the copy is spread over. Scoring takes one forward pass, an update four (the
backward pass is two, and the forward pass is done again for it) with 4.5 for attention. The rates are the chip's
published ones times the shares in `Assumptions`, which are assumptions and nothing measured. Left out: compiling,
loading, verifiers, links between devices, the optimiser's own memory traffic, and slots that run empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from types import MappingProxyType

from vsr_jax.errors import UserError
from vsr_jax.model.config import ModelConfig, parse_config, read_config
from vsr_jax.model.params import param_count
from vsr_jax.model.presets import preset as published
from vsr_jax.parallel.topology import CHIPS
from vsr_jax.study.preset import Preset
from vsr_jax.study.work import Work

_GIB = 2**30


@dataclass(frozen=True)
class Rates:
    """One device.

    Attributes:
      flops: bf16 operations a second; bytes: a second from device memory; memory: bytes of it.
    """

    flops: float
    bytes: float
    memory: float


DEVICES: Mapping[str, Rates] = MappingProxyType(
    {
        **{name: Rates(chip.flops, chip.hbm_bytes, chip.hbm_gib * _GIB) for name, chip in CHIPS.items()},
        "h100": Rates(989e12, 3.35e12, 80e9),
    }
)
"""TPUs as in `parallel.topology`; H100 SXM from https://www.nvidia.com/en-us/data-center/h100/, dense bf16."""


@dataclass(frozen=True)
class Assumptions:
    """What an estimate takes for granted; none of it is measured.

    Attributes:
      prompt, response: mean tokens; a response has no more than its limit.
      bandwidth, compute: share of the published rates that is reached.
      memory: share of device memory that a program may use.
    """

    prompt: int = 256
    response: int = 1024
    bandwidth: float = 0.6
    compute: float = 0.4
    memory: float = 0.9

    def __str__(self) -> str:
        return (
            f"{self.prompt} prompt and {self.response} response tokens on average, {self.bandwidth:.0%} of the memory "
            f"rate and {self.compute:.0%} of the compute rate"
        )


def model_sizes(preset: Preset) -> ModelConfig:
    """The shape of a preset's model, from its directory or from the published sizes; nothing is downloaded.

    Raises:
      UserError: a hub id whose sizes are not known here.
    """
    from vsr_jax.data.micro import BASE

    directory = Path(preset.model) if preset.model else BASE
    raw = read_config(directory / "config.json") if directory.is_dir() else published(preset.model)
    return parse_config(raw, where=preset.model or "config.json", max_position=preset.max_position)


def device_seconds(config: ModelConfig, work: Work, slots: int, device: Rates, given: Assumptions) -> float:
    """Seconds of one device that a stage's work takes.

    Args:
      slots: responses that one copy of the weights decodes together.
    """
    flops, rate = device.flops * given.compute, device.bytes * given.bandwidth
    answer = min(given.response, work.max_tokens)
    matrices = param_count(config) - (0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size)
    heads = config.num_layers * config.num_heads * config.head_dim

    def forward(length: int, attention: float = 1.0, passes: float = 1.0) -> float:
        """Operations on one row, causal."""
        return passes * 2.0 * matrices * length + attention * 2.0 * heads * length**2

    seen = given.prompt + answer / 2
    cache = seen * cache_bytes(config)
    at_once = min(slots, work.responses) or 1
    token = max((2.0 * matrices / at_once + cache) / rate, (2.0 * matrices + 4.0 * heads * seen) / flops)
    row = given.prompt + answer
    return (
        work.responses * answer * token
        + work.prompts * forward(given.prompt) / flops
        + work.scored * forward(row) / flops
        + work.trained * forward(row, 4.5, 4.0) / flops
    )


def cache_bytes(config: ModelConfig) -> float:
    """Keys and values of one token in bfloat16."""
    return 2.0 * 2 * config.num_layers * config.num_kv_heads * config.head_dim


def fewest_devices(config: ModelConfig, work: Work, slots: int, device: Rates, given: Assumptions) -> int:
    """The smallest power of two whose memory holds the stage.

    Training: float32 parameters, gradients and two moments, and a bfloat16 copy that samples; else one such copy a
    model. Decoding: the cache of `slots` responses at the assumed mean length. Activations are not counted.
    """
    count = param_count(config)
    held = (18.0 if work.trained else 0.0) * count + 2.0 * count * work.models
    if work.responses:
        answer = min(given.response, work.max_tokens)
        held += min(slots, work.responses) * (given.prompt + answer) * cache_bytes(config)
    return 2 ** max(0, ceil(log2(max(held, 1.0) / (device.memory * given.memory))))


def device_of(name: str) -> Rates:
    """A device by name. Raises UserError naming the known ones."""
    if name not in DEVICES:
        raise UserError(f"--chip {name}: unknown; choose one of {', '.join(DEVICES)}")
    return DEVICES[name]
