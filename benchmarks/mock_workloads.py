"""The workloads that need no weights: a small mock model that draws every token with equal probability.

Then the length of a response is geometric by itself, with the share of stop ids in the vocabulary as its rate.
"""

import time

import jax
import numpy as np

import vsr_jax
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import init_params
from vsr_jax.model.transformer import unstack_layers

VOCABULARY = 1024


def mock_model(context: int):
    """A four-layer Qwen2-like model of width 128 whose head is zero."""
    config = ModelConfig(
        "qwen2", VOCABULARY, VOCABULARY, 128, 384, 4, 8, 4, 32, 1e-6, 1e4, context, True, False, False, False
    )
    params = init_params(config, jax.random.key(0))
    return config, unstack_layers(config, params | {"lm_head": 0 * params["lm_head"]})


def ragged(repeats: int, *, prompts: int = 64, n: int = 32, slots: int = 128, longest: int = 512) -> dict:
    """Responses of geometric length with a mean of 1/8 of the maximum, with refill and without, in turn."""
    config, params = mock_model(2 * longest)
    request = vsr_jax.SamplingParams(n=n, max_tokens=longest, stop_ids=tuple(range(8 * VOCABULARY // longest)))
    rng = np.random.default_rng(0)
    texts = [rng.integers(16, VOCABULARY, 32).tolist() for _ in range(prompts)]
    rates: dict[bool, list[float]] = {True: [], False: []}
    lengths = np.zeros(0)
    for _ in range(repeats + 1):
        for refill, rate in rates.items():
            began = time.monotonic()
            # The same seed again: each row has the length that it had when everything was compiled.
            out = vsr_jax.sample(config, params, texts, request, seed=0, slots=slots, refill=refill)
            lengths = out.length
            rate.append(float(lengths.sum() / (time.monotonic() - began)))
    best = {refill: max(rate[1:]) for refill, rate in rates.items()}
    return {
        "rows": prompts * n,
        "slots": slots,
        "mean_length": float(lengths.mean()),
        "longest": int(lengths.max()),
        "tokens_per_s": best[True],
        "tokens_per_s_without_refill": best[False],
        "ratio": best[True] / best[False],
        "all": {"refill": rates[True][1:], "none": rates[False][1:]},
    }


def live(repeats: int, *, slots: int = 32, length: int = 256, large: int = 8192, small: int = 512) -> dict:
    """A decode step of responses that are about `length` tokens long, by what `max_tokens` would allow.

    The steps are the last 64 before `length`: the difference of two calls that force a stop there and 64 earlier.
    """
    config, params = mock_model(2 * large)
    stop, steps = 3, 64
    seconds: dict[int, list[float]] = {large: [], small: []}

    def call(allowed: int, end: int) -> float:
        forced = np.full((slots, end), 5, np.int32)
        forced[1:] = 6  # a prefix that all slots share would not be decoded
        forced[:, -1] = stop
        request = vsr_jax.SamplingParams(n=slots, max_tokens=allowed, stop_ids=(stop,))
        began = time.monotonic()
        out = vsr_jax.sample(config, params, [[7] * 16], request, seed=0, forced_tokens=forced, chunk=32)
        assert (out.length == end).all()
        return time.monotonic() - began

    for i in range(repeats + 1):
        for allowed, all_ in seconds.items():
            whole, part = call(allowed, length), call(allowed, length - steps)
            if i:
                all_.append((whole - part) / steps)
    best = {allowed: float(np.median(all_)) for allowed, all_ in seconds.items()}
    return {
        "slots": slots,
        "length": length,
        f"step_ms_{large}": 1e3 * best[large],
        f"step_ms_{small}": 1e3 * best[small],
        "ratio": best[large] / best[small],
    }
