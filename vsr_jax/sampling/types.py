"""What to sample, and what came out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flax import struct

STOP, LENGTH = 0, 1
"""Values of `Rollouts.finish_reason`: ended by a stop token, or cut at the length limit."""

FINISH_NAMES = ("stop", "length")


@dataclass(frozen=True)
class SamplingParams:
    """How to draw responses. Numbers may be one value, or one a prompt; none of them causes a recompilation.

    Attributes:
      n: samples a prompt.
      max_tokens: longest response in tokens, forced tokens included.
      temperature: 0 takes the likeliest token.
      top_p: smallest set of likeliest tokens whose mass reaches it, the crossing token included; applied after
        temperature and top_k. 1 keeps everything.
      top_k: number of likeliest tokens kept; 0 keeps everything.
      stop_ids: any of them ends a response (and belongs to it).
    """

    n: int = 1
    max_tokens: int | Sequence[int] = 256
    temperature: float | Sequence[float] = 1.0
    top_p: float | Sequence[float] = 1.0
    top_k: int | Sequence[int] = 0
    stop_ids: tuple[int, ...] = ()


@struct.dataclass
class Rollouts:
    """N responses to P prompts, as a struct of arrays. Token ids are the truth; nothing is ever encoded again.

    Attributes:
      tokens: int32[N, R], right-padded with 0; only the first `length` entries mean anything.
      length: int32[N], the stop token included.
      sampled: bool[N, R], False where a token was forced and beyond the end.
      logp: float32[N, R], log-probability of each token under the raw policy (temperature 1, no truncation).
      logp_behavior: float32[N, R], under the warped distribution that was drawn from; -inf for a forced token that
        the warped distribution excludes.
      finish_reason: int8[N], `STOP` or `LENGTH`.
      prompt_id: int32[N], as given to `sample`; sample_id: int32[N], 0..n-1 within a prompt.
      prompt_index: int32[N], row of `prompt_tokens`.
      prompt_tokens: int32[P, S], right-padded; prompt_length: int32[P].
    """

    tokens: np.ndarray
    length: np.ndarray
    sampled: np.ndarray
    logp: np.ndarray
    logp_behavior: np.ndarray
    finish_reason: np.ndarray
    prompt_id: np.ndarray
    sample_id: np.ndarray
    prompt_index: np.ndarray
    prompt_tokens: np.ndarray
    prompt_length: np.ndarray

    def response(self, row: int) -> list[int]:
        """Token ids of one response, the stop token included."""
        return self.tokens[row, : self.length[row]].tolist()


@dataclass(frozen=True)
class SamplerStats:
    """What one call of `sample` cost.

    Attributes:
      slots: responses decoded together.
      chunks: visits to the host.
      steps: decode steps of all chunks; every slot takes part in each, live or not.
      tokens: response tokens made, forced ones included where a decode step took them.
      prefills: prompts run.
      first_token_s: seconds until the first chunk had come back, compilation included.
      seconds: of the whole call.
    """

    slots: int = 0
    chunks: int = 0
    steps: int = 0
    tokens: int = 0
    prefills: int = 0
    first_token_s: float = 0.0
    seconds: float = 0.0

    @property
    def occupancy(self) -> float:
        """Share of slot-steps that made a token of a response."""
        return self.tokens / (self.slots * self.steps) if self.steps else 0.0
