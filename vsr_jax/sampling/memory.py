"""What a sampling call takes in memory, and how many slots fit. Host code; refuses before anything is compiled."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from vsr_jax.errors import UserError
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params, param_count
from vsr_jax.sampling.schedule import Layout, bucket, plan_layout

LOGITS = 4
"""float32 arrays [slots, vocab_size] that are alive at once: logits, raw and warped log-probabilities, masses."""


def call_bytes(config: ModelConfig, layout: Layout, max_tokens: int) -> int:
    """Bytes of the keys, values and logits of a call whose responses become as long as they may, without weights."""
    slots = layout.lanes * layout.group
    token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * np.dtype(config.dtype).itemsize
    ring = max(bucket(max_tokens), layout.ring)
    columns = layout.lanes * layout.prompts * layout.width + slots * ring
    # The ring grows a layer at a time: one layer lies there twice.
    twice = slots * ring * token // config.num_layers
    return columns * token + twice + LOGITS * 4 * slots * config.vocab_size


def slots_that_fit(
    config: ModelConfig, lengths: Sequence[int], n: int, max_tokens: int, available: int, at_most: int = 4096
) -> int:
    """The largest number of slots, up to `at_most`, whose keys, values and logits take at most `available` bytes.

    Args:
      lengths: tokens of each prompt; n: samples a prompt.

    Returns:
      0 where not even one slot fits.
    """
    for slots in range(at_most, 0, -1):
        if call_bytes(config, plan_layout(lengths, n, max_tokens, slots), max_tokens) <= available:
            return slots
    return 0


def check_memory(
    config: ModelConfig, params: Params, lengths: Sequence[int], n: int, max_tokens: int, layout: Layout, slots: int
) -> None:
    """Refuses a call that does not fit into what is free of the device, or of the host where that is the device.

    Parameters on several devices are not judged here: `vsr plan` compiles for those.

    Raises:
      UserError: with the number of slots that fits.
    """
    devices = {d for leaf in jax.tree.leaves(params) if isinstance(leaf, jax.Array) for d in leaf.devices()}
    available = free_bytes(next(iter(devices))) if len(devices) == 1 else None
    if available is None:
        return
    if not isinstance(params["layers"], tuple):
        available -= param_count(config) * np.dtype(config.dtype).itemsize  # the copy that decoding reads
    needed = call_bytes(config, layout, max_tokens)
    if needed > available:
        fit = slots_that_fit(config, lengths, n, max_tokens, available, at_most=slots)
        advice = f"{fit} slots fit; lower slots (--rows) or max_tokens" if fit else "not even 1 slot fits"
        raise UserError(
            f"{slots} slots of up to {max_tokens} tokens need {needed / 2**30:.1f} GiB beside the weights, "
            f"{max(available, 0) / 2**30:.1f} GiB are free: {advice}"
        )


def free_bytes(device: Any) -> int | None:
    """Bytes that can still be allocated, or None where nobody says."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    if device.platform != "cpu":
        return None
    try:
        with open("/proc/meminfo") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
