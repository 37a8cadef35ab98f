"""The one input of this room: which of a prompt's samples passed."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Missing = Literal["error", "omit", "wrong", "correct"]


def as_passes(passes: ArrayLike) -> NDArray[np.float64]:
    """Checks pass marks and returns them as float64[prompts, n] holding 0, 1 and NaN (no verdict).

    Raises:
      ValueError: not a matrix, empty, or holding anything but 0, 1 and NaN.
    """
    matrix = np.asarray(passes, dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(f"passes must be a matrix [prompts, n], got shape {matrix.shape}")
    if matrix.size == 0:
        raise ValueError(f"passes must hold at least one prompt and one sample, got shape {matrix.shape}")
    known = np.isnan(matrix) | (matrix == 0) | (matrix == 1)
    if not known.all():
        row, column = np.argwhere(~known)[0]
        raise ValueError(f"passes must hold 0, 1 or NaN, got {matrix[row, column]} at prompt {row}, sample {column}")
    return matrix


def settle_missing(passes: ArrayLike, missing: Missing) -> NDArray[np.float64]:
    """Applies the named policy for samples without a verdict.

    Args:
      passes: [prompts, n] as in `as_passes`.
      missing: `error` refuses them; `omit` leaves NaN in place, for the caller to skip; `wrong` and `correct` count
        them as such, which bounds the unknown number from below and above.

    Raises:
      ValueError: under `error`, when any sample has no verdict; or an unknown policy.
    """
    matrix = as_passes(passes)
    gaps = np.isnan(matrix)
    if missing == "error":
        if gaps.any():
            prompts = np.flatnonzero(gaps.any(axis=1))
            raise ValueError(
                f"{int(gaps.sum())} samples of {len(prompts)} prompts have no verdict (first: prompt {prompts[0]}); "
                "choose missing='omit', 'wrong' or 'correct'"
            )
        return matrix
    if missing == "omit":
        return matrix
    if missing in ("wrong", "correct"):
        return np.where(gaps, float(missing == "correct"), matrix)
    raise ValueError(f"missing must be 'error', 'omit', 'wrong' or 'correct', got {missing!r}")
