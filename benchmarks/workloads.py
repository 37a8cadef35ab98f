"""Prompts and lengths of the rollout workloads, the same for us and for every peer. Needs numpy only."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Workload:
    """Token ids of the prompts, samples a prompt, and new tokens at most; `stop` lets responses end by themselves."""

    prompts: list[list[int]]
    n: int
    max_tokens: int
    stop: bool


def workload(name: str, vocabulary: int = 150_000) -> Workload:
    """`group`: one prompt of 256 tokens, 32 samples of 64. `mixed`: 8 prompts of 24 to 256 tokens, 8 samples, natural
    stopping within 128. `single`: one prompt of 64 tokens, one sample of 64."""
    rng = np.random.default_rng(0)
    tokens = lambda n: rng.integers(1000, vocabulary, n).tolist()  # noqa: E731
    if name == "group":
        return Workload([tokens(256)], 32, 64, False)
    if name == "mixed":
        return Workload([tokens(n) for n in (24, 40, 64, 80, 112, 160, 208, 256)], 8, 128, True)
    if name == "single":
        return Workload([tokens(64)], 1, 64, False)
    raise ValueError(f"workload {name!r}; use group, mixed or single")
