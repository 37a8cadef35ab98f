"""Changes to a response's reward before advantages are taken, in numpy."""

import numpy as np


def overlong_penalty(length: np.ndarray, *, longest: int, buffer: int) -> np.ndarray:
    """Penalty that grows linearly over the last `buffer` tokens before the limit (DAPO, arXiv 2503.14476, eq. 13).

    0 up to `longest - buffer` tokens, then ((longest - buffer) - length) / buffer, and -1 from `longest` on.

    Args:
      length: int[...], tokens of each response.
      longest: the limit in tokens; buffer: the width of the ramp, 0 < buffer <= longest.

    Returns:
      float64[...] between -1 and 0, to be added to the reward.
    """
    if not 0 < buffer <= longest:
        raise ValueError(f"buffer is {buffer}; it must be at least 1 and at most longest, {longest}")
    return np.clip((longest - buffer - np.asarray(length, np.float64)) / buffer, -1.0, 0.0)


def penalised_rewards(rewards: np.ndarray, penalty: np.ndarray, counted: np.ndarray, coefficient: float) -> np.ndarray:
    """The KL in the reward: r - coefficient * sum over tokens of the penalty (arXiv 2203.02155, equation 2).

    With k1 = log pi - log ref of the sampled tokens as the penalty, the score-function gradient is exactly that of
    the sequence's KL(pi || ref); see docs/losses.md. k3 or the exact KL of each position may be given as well.

    Args:
      rewards: float[P, G].
      penalty: float[P * G, R], per token, prompt-major as the sampler returns them; `kl_estimate` makes it.
      counted: bool[P * G, R], the tokens that the policy drew itself.
      coefficient: beta, 0 or larger.

    Returns:
      float64[P, G]; NaN stays NaN.
    """
    rewards = np.asarray(rewards, np.float64)
    total = np.where(counted, np.asarray(penalty, np.float64), 0.0).sum(1)
    return rewards - coefficient * total.reshape(rewards.shape)
