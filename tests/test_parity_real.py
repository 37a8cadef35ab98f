"""Real models against recorded figures of the reference implementation (`goldens/real_NAME.npz`, 16 prompts).

Runs for each model whose directory an environment variable names; `pytest -rP tests/test_parity_real.py` also prints
the figures. Differences are of natural log-probabilities of the next token, at every position of every prompt. The
limits allow for float32 sums taken in another order; the models and what was recorded are told in `docs/parity.md`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pytest

import vsr_jax
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params

GOLDENS = Path(__file__).parent / "goldens"
VARIABLES = {"smollm2-135m": "VSR_REAL_MODEL_SMOLLM", "qwen2.5-0.5b": "VSR_REAL_MODEL_QWEN"}
FROM_REFERENCE, FROM_EACH_OTHER = 2e-3, 1e-4

Rows = list[np.ndarray]


@dataclass(frozen=True)
class Real:
    """A real model in float32, with its recorded figures.

    Attributes:
      config: leaves the padded rows of the vocabulary out; `config_all` counts them, as the reference does.
      prompts: the 16 prompts, one of them a single token and one 1,500.
    """

    directory: Path
    golden: dict[str, np.ndarray]
    config: ModelConfig
    config_all: ModelConfig
    params: Params
    prompts: Rows

    def recorded(self, name: str) -> Rows:
        """Rows of a recorded array of next-token figures, without padding."""
        return [row[: n - 1] for row, n in zip(self.golden[name], self.golden["length"], strict=True)]


@pytest.fixture(scope="module", params=VARIABLES)
def real(request: pytest.FixtureRequest):
    directory = os.environ.get(VARIABLES[request.param])
    if not directory:
        pytest.skip(f"set {VARIABLES[request.param]} to the directory of {request.param} to run this test")
    # The other tests compile fast and run slow; here it is the other way round.
    fast_compiling = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    golden = dict(np.load(GOLDENS / f"real_{request.param}.npz"))
    config, params = vsr_jax.load_model(directory, "float32")
    config_all, _ = vsr_jax.load_model(directory, "float32", keep_padded_rows=True)
    prompts = [row[:n] for row, n in zip(golden["tokens"], golden["length"], strict=True)]
    yield Real(Path(directory), golden, config, config_all, params, prompts)
    jax.config.update("jax_disable_most_optimizations", fast_compiling)


@pytest.fixture(scope="module")
def alone(real: Real) -> Rows:
    """Log-probabilities of each prompt by itself, without padding."""
    return unpadded(real, real.config, real.params)


def unpadded(real: Real, config: ModelConfig, params: Params) -> Rows:
    """Each prompt at its own length. A prompt of one token has nothing to score."""
    score = lambda p: np.asarray(vsr_jax.token_logprobs(config, params, p[None]))[0]  # noqa: E731
    return [score(p) if len(p) > 1 else np.zeros(0) for p in real.prompts]


def left_padded(real: Real, prompts: Sequence[np.ndarray]) -> Rows:
    """One batch, the prompts at the right edge of rows that are 36 tokens wider than the longest."""
    width = max(map(len, prompts)) + 36
    tokens = np.zeros((len(prompts), width), np.int32)
    segments = np.zeros_like(tokens)
    for i, prompt in enumerate(prompts):
        tokens[i, width - len(prompt) :], segments[i, width - len(prompt) :] = prompt, 1
    positions = np.maximum(np.cumsum(segments, axis=1) - 1, 0)
    scored = vsr_jax.token_logprobs(real.config, real.params, tokens, positions=positions, segments=segments)
    return [row[width - len(p) :] for row, p in zip(np.asarray(scored), prompts, strict=True)]


def check(what: str, got: Rows, expected: Rows, limit: float) -> None:
    """Prints the largest difference and holds it to the limit."""
    worst = max(float(np.abs(x - y).max(initial=0)) for x, y in zip(got, expected, strict=True))
    print(f"{what}: {worst:.1e}, limit {limit:.0e}")
    assert worst <= limit


def test_the_model_is_the_recorded_one(real: Real) -> None:
    golden = real.golden
    assert (real.config.vocab_size, real.config.num_tokens) == (golden["vocab_size"], golden["token_count"])
    lengths = golden["length"].tolist()
    assert len(lengths) == 16
    assert {1, 1500} <= set(lengths)


def test_no_padding(real: Real, alone: Rows) -> None:
    check("no padding, ids of the tokenizer", alone, real.recorded("logp_known"), FROM_REFERENCE)


def test_no_padding_over_all_rows_of_the_vocabulary(real: Real) -> None:
    got = unpadded(real, real.config_all, real.params)
    check("no padding, all rows of the vocabulary", got, real.recorded("logp"), FROM_REFERENCE)


def test_one_right_padded_batch(real: Real, alone: Rows) -> None:
    tokens, length = real.golden["tokens"], real.golden["length"]  # padded with 0, a token of the prompts too
    scored = np.asarray(vsr_jax.token_logprobs(real.config, real.params, tokens, length))
    got = [row[: n - 1] for row, n in zip(scored, length, strict=True)]
    check("one right-padded batch", got, real.recorded("logp_known"), FROM_REFERENCE)
    check("one right-padded batch, from no padding", got, alone, FROM_EACH_OTHER)


def test_left_padded_batches(real: Real, alone: Rows) -> None:
    # Two batches: next to the 1,500 tokens the others would be padding for the most part.
    order = np.argsort(real.golden["length"])
    for part in (order[:-2], order[-2:]):
        got = left_padded(real, [real.prompts[i] for i in part])
        check("left-padded batch, from no padding", got, [alone[i] for i in part], FROM_EACH_OTHER)


def test_one_packed_row(real: Real, alone: Rows) -> None:
    tokens = np.concatenate(real.prompts)[None]
    segments = np.concatenate([np.full(len(p), i + 1) for i, p in enumerate(real.prompts)])[None]
    positions = np.concatenate([np.arange(len(p)) for p in real.prompts])[None]
    scored = vsr_jax.token_logprobs(real.config, real.params, tokens, positions=positions, segments=segments)
    ends = np.cumsum([len(p) for p in real.prompts])
    got = [np.asarray(scored)[0, end - len(p) : end - 1] for end, p in zip(ends, real.prompts, strict=True)]
    check("one packed row, from no padding", got, alone, FROM_EACH_OTHER)


def test_greedy_continuations(real: Real) -> None:
    expected = real.golden["greedy"]
    sampling = vsr_jax.SamplingParams(n=1, max_tokens=expected.shape[1], temperature=0.0)
    prompts = [p.tolist() for p in real.prompts]
    got = vsr_jax.sample(real.config, real.params, prompts, sampling, seed=0).tokens
    same = got == expected
    print(f"greedy: {same.all(axis=1).sum()} of {len(same)} prompts, {same.sum()} of {same.size} tokens")
    np.testing.assert_array_equal(got, expected)


def test_bfloat16_deviates_no_more_than_the_reference(real: Real) -> None:
    config, params = vsr_jax.load_model(real.directory, "bfloat16", keep_padded_rows=True)
    ours = np.concatenate(unpadded(real, config, params))
    size = np.abs(ours - np.concatenate(real.recorded("logp")))
    summary = [size.mean(), np.median(size), np.quantile(size, 0.99), size.max()]
    for name, own, reference in zip(
        ("mean", "median", "99 %", "maximum"), summary, real.golden["bf16_abs_deviation"], strict=True
    ):
        print(f"bfloat16 from float32, {name}: {own:.4f}, reference {reference:.4f}")
    assert np.all(summary[:3] <= real.golden["bf16_abs_deviation"][:3])
    # The maximum is one token of thousands, where two roundings of the same kind differ by chance.
    assert summary[3] <= 1.5 * real.golden["bf16_abs_deviation"][3]
