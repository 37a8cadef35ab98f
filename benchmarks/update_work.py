"""The work of the update benchmark, the same for us and for every peer. Needs numpy only."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class UpdateWork:
    """Token ids and advantages of one GRPO step.

    Attributes:
      prompts: int32[P, S]; responses: int32[P, G, R], none of them ended early.
      advantages: float32[P, G], zero mean in each group.
    """

    prompts: np.ndarray
    responses: np.ndarray
    advantages: np.ndarray


def update_work(prompts: int = 2, group: int = 8, prompt_tokens: int = 64, tokens: int = 256) -> UpdateWork:
    """Random tokens: what a step costs does not depend on which tokens they are."""
    rng = np.random.default_rng(0)
    rewards = (np.arange(group) % 2).astype(np.float32)[None].repeat(prompts, 0)
    return UpdateWork(
        rng.integers(1000, 40_000, (prompts, prompt_tokens)).astype(np.int32),
        rng.integers(1000, 40_000, (prompts, group, tokens)).astype(np.int32),
        (rewards - rewards.mean(1, keepdims=True)) / rewards.std(1, keepdims=True),
    )
