"""Advantages of responses over their group or batch, in numpy: they are computed once a step on the host.

Every function takes all rewards of the step, float[P, G] for P prompts with G responses, NaN where a response has no
verdict; such a response is left out of the statistics and gets 0. Whatever is filtered (groups without signal, cut
responses) is filtered afterwards, so that no statistic depends on a filter. A group whose rewards are all equal gets
exact zeros wherever a group is the baseline.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

_RESIDUE = 1e-6
"""Rewards closer than this, relative to the largest of them, are the same reward computed in different orders."""


def _centred(rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rewards less the mean of their row, float64[P, G], and how many of a row have a verdict, int[P, 1]."""
    rewards = np.asarray(rewards, np.float64)
    valid = np.isfinite(rewards)
    count = valid.sum(1, keepdims=True)
    filled = np.where(valid, rewards, 0.0)
    centred = np.where(valid, filled - filled.sum(1, keepdims=True) / np.maximum(count, 1), 0.0)
    return np.where(varies(rewards)[:, None], centred, 0.0), count


def varies(rewards: np.ndarray) -> np.ndarray:
    """Whether the rewards float[P, G] of a group differ, bool[P]; NaN is ignored."""
    # Compared as numbers, not by a computed variance: the float residue of a mean is not a signal.
    rewards = np.asarray(rewards, np.float64)
    valid = np.isfinite(rewards)
    low = np.where(valid, rewards, np.inf).min(1, keepdims=True)
    high = np.where(valid, rewards, -np.inf).max(1, keepdims=True)
    some = high >= low
    spread = np.subtract(high, low, where=some, out=np.zeros_like(high))
    return (some & (spread > _RESIDUE * np.maximum(-low, high)))[:, 0]


def group_advantages(rewards: np.ndarray, *, std: str = "population", eps: float = 1e-6) -> np.ndarray:
    """A_i = (r_i - mean(r)) / (std(r) + eps) over the group (GRPO, arXiv 2402.03300, section 4.1.2).

    Args:
      rewards: float[P, G].
      std: divide by the group's `population` or `sample` deviation, or `none` (Dr.GRPO, arXiv 2503.20783, section 3).
      eps: added to the deviation.

    Returns:
      float32[P, G].
    """
    if std not in ("population", "sample", "none"):
        raise ValueError(f"std is {std!r}; use population, sample or none")
    centred, count = _centred(rewards)
    if std != "none":
        freedom = np.maximum(count if std == "population" else count - 1, 1)
        centred = centred / (np.sqrt((centred**2).sum(1, keepdims=True) / freedom) + eps)
    return centred.astype(np.float32)


def leave_one_out(rewards: np.ndarray) -> np.ndarray:
    """A_i = r_i - mean of the other rewards of the group = G / (G - 1) (r_i - mean(r)) (RLOO, arXiv 2402.14740).

    Returns:
      float32[P, G]; zero for a response that has no other to be compared with.
    """
    centred, count = _centred(rewards)
    return (centred * count / np.maximum(count - 1, 1)).astype(np.float32)


def batch_advantages(rewards: np.ndarray, *, baseline: str = "group", eps: float = 1e-6) -> np.ndarray:
    """A_i = (r_i - b_i) / (std(r - b) + eps), the deviation taken over the whole step (REINFORCE++, arXiv 2501.03262).

    Args:
      rewards: float[P, G].
      baseline: b is the mean of the `group` (REINFORCE++ with baseline), or of the `batch` (REINFORCE++; a group
        whose rewards are all equal then carries a signal, since it is compared with the other groups).
      eps: added to the deviation, which is that of the population.

    Returns:
      float32[P, G].
    """
    if baseline not in ("group", "batch"):
        raise ValueError(f"baseline is {baseline!r}; use group or batch")
    rewards = np.asarray(rewards, np.float64)
    groups = rewards if baseline == "group" else rewards.reshape(1, -1)
    centred, count = _centred(groups)
    deviation = np.sqrt((centred**2).sum() / np.maximum(count.sum(), 1))
    return (centred / (deviation + eps)).astype(np.float32).reshape(rewards.shape)


ADVANTAGES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "grpo": group_advantages,
        "grpo_sample_std": partial(group_advantages, std="sample"),
        "dr_grpo": partial(group_advantages, std="none"),
        "rloo": leave_one_out,
        "reinforce++": partial(batch_advantages, baseline="batch"),
        "reinforce++_baseline": batch_advantages,
    }
)
"""Every estimator by the name of its paper, `rewards float[P, G] -> float32[P, G]`."""


def signal_shares(rewards: np.ndarray) -> dict[str, float]:
    """Shares of groups that are all right, all wrong and mixed; only mixed ones carry a GRPO signal.

    Rewards are float[P, G]; NaN is ignored, and so is a group without any verdict. Right is a reward of at least 1.
    """
    rewards = np.asarray(rewards, np.float64)
    rewards = rewards[np.isfinite(rewards).any(1)]
    if not len(rewards):
        return dict.fromkeys(("groups_all_pass", "groups_all_fail", "groups_mixed"), float("nan"))
    right = np.where(np.isfinite(rewards), rewards, -np.inf).max(1) >= 1
    mixed = varies(rewards)
    return {
        "groups_all_pass": float((~mixed & right).mean()),
        "groups_all_fail": float((~mixed & ~right).mean()),
        "groups_mixed": float(mixed.mean()),
    }
