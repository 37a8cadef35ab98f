"""Group-relative advantages, in numpy: they are computed once a step on the host."""

import numpy as np


def group_advantages(rewards: np.ndarray, *, std: str = "population", eps: float = 1e-6) -> np.ndarray:
    """Advantage of each response over its group (GRPO, arXiv 2402.03300, section 4.1.2).

    Args:
      rewards: float[P, G]. NaN marks a response without a verdict: it is left out of the statistics.
      std: divide by the group's `population` or `sample` deviation, or `none` (Dr.GRPO, arXiv 2503.20783).
      eps: added to the deviation.

    Returns:
      float32[P, G]; exactly zero for a group without variance, of one, and for responses without a verdict.
    """
    if std not in ("population", "sample", "none"):
        raise ValueError(f"std is {std!r}; use population, sample or none")
    rewards = np.asarray(rewards, np.float64)
    valid = np.isfinite(rewards)
    count = np.maximum(valid.sum(1, keepdims=True), 1)
    filled = np.where(valid, rewards, 0.0)
    centred = np.where(valid, filled - filled.sum(1, keepdims=True) / count, 0.0)
    # Compared as numbers, not by a computed variance: the float residue of a constant group is not a signal.
    low = np.where(valid, rewards, np.inf).min(1, keepdims=True)
    high = np.where(valid, rewards, -np.inf).max(1, keepdims=True)
    if std != "none":
        spread = count if std == "population" else np.maximum(count - 1, 1)
        centred = centred / (np.sqrt((centred**2).sum(1, keepdims=True) / spread) + eps)
    return np.where(valid & (high > low), centred, 0.0).astype(np.float32)


def signal_shares(rewards: np.ndarray) -> dict[str, float]:
    """Shares of groups that are all right, all wrong and mixed; only mixed ones carry a GRPO signal. NaN is ignored."""
    valid = np.isfinite(rewards)
    best, worst = np.where(valid, rewards, -np.inf).max(1), np.where(valid, rewards, np.inf).min(1)
    mixed = best > worst
    return {
        "groups_all_pass": float((~mixed & (best >= 1)).mean()),
        "groups_all_fail": float((~mixed & (best < 1)).mean()),
        "groups_mixed": float(mixed.mean()),
    }
