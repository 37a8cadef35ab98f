"""A round of rollouts: prompts drawn in order, sampled, judged, and shared by all processes as numbers.

Each process samples and judges its own prompts; text never travels. What comes out is the same on every process and
whatever their number, since a row's randomness comes from its place in the stream of prompts.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from vsr_jax.data.rows import Row
from vsr_jax.judging import Judged, judge
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.objectives.advantages import varies
from vsr_jax.parallel.distributed import gather_rows, local_rows
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import LENGTH, Rollouts, SamplingParams
from vsr_jax.support.openings import OpeningRules
from vsr_jax.training.settings import RlvrSettings

_NAME = "S64"
"""How an opening's name travels: as bytes of one width."""


@dataclass
class Source:
    """Where prompts come from and how their responses are judged.

    Attributes:
      rows: training prompts.
      encode: token ids of a row's framed prompt; asked once a row.
      tokenizer, stop_ids: for text and for the end of a response.
      rules: opening rules; the shipped ones when None.
      verify: see `judge`.
    """

    rows: Sequence[Row]
    encode: Callable[[Row], list[int]]
    tokenizer: Any
    stop_ids: tuple[int, ...]
    rules: OpeningRules | None = None
    verify: Any = None
    _ids: dict[int, list[int]] = dataclasses.field(default_factory=dict)

    def prompt(self, index: int) -> list[int]:
        """Token ids of row `index`."""
        if index not in self._ids:
            self._ids[index] = self.encode(self.rows[index])
        return self._ids[index]


@dataclass(frozen=True)
class Round:
    """P groups of G responses, N = P G, with what was found in them.

    Attributes:
      rollouts: prompt-major.
      rewards: float64[P, G], NaN where there is no verdict.
      no_verdict: bool[N]; opening: bytes[N], names of opening classes.
      seconds_sample, seconds_verify: of this process.
    """

    rollouts: Rollouts
    rewards: np.ndarray
    no_verdict: np.ndarray
    opening: np.ndarray
    seconds_sample: float
    seconds_verify: float


def prompt_indices(count: int, seed: int, first: int, number: int) -> np.ndarray:
    """Rows at places `first` to `first + number` of the stream of prompts: one shuffle of all rows after another."""
    flat = np.arange(first, first + number)
    shuffles = {e: np.random.default_rng([seed, e]).permutation(count) for e in set((flat // count).tolist())}
    return np.array([shuffles[i // count][i % count] for i in flat.tolist()])


def rewards_of(judged: Sequence[Judged], kind: str, groups: int) -> np.ndarray:
    """float64[groups, samples]; NaN where there is no verdict."""

    def one(item: Judged) -> float:
        if item.verdict.status in ("timeout", "error"):
            return float("nan")
        return item.verdict.fraction if kind == "fraction" else float(item.verdict.passed)

    return np.array([one(item) for item in judged], np.float64).reshape(groups, -1)


def draw_round(
    config: ModelConfig, params: Params, source: Source, settings: RlvrSettings, first: int, seed: int
) -> Round:
    """Samples and judges `settings.prompts` prompts from place `first` of the stream on.

    Args:
      params: as `sample` takes them, on this process.
      seed: of the sampler; a row's place in the stream does the rest.

    Returns:
      A `Round`, the same on every process.
    """
    began = time.monotonic()
    prompts = settings.prompts
    index = prompt_indices(len(source.rows), settings.seed, first, prompts).tolist()
    ids = [source.prompt(i) for i in index]
    mine = local_rows(prompts)
    request = SamplingParams(
        settings.samples, settings.max_tokens, settings.temperature, settings.top_p, 0, source.stop_ids
    )
    own = sample(
        config,
        params,
        [ids[i] for i in mine],
        request,
        seed=seed,
        # A prompt may come twice in one step when there are few; its place keeps the groups apart.
        prompt_ids=[first + i for i in mine],
    )
    sampled = time.monotonic()
    judged = judge(
        [source.rows[index[i]] for i in mine],
        own,
        source.tokenizer,
        require_stop=settings.require_stop,
        extract=settings.extract,
        rules=source.rules,
        verify=source.verify,
    )
    own = dataclasses.replace(_widen(own, max(map(len, ids))), prompt_index=own.prompt_index + mine.start)
    found = {
        "rewards": rewards_of(judged, settings.reward, len(mine)),
        "no_verdict": np.array([item.verdict.status in ("timeout", "error") for item in judged]),
        "opening": np.array([item.opening.encode() for item in judged], _NAME),
    }
    verified = time.monotonic()
    shares = [len(local_rows(prompts, p)) for p in range(jax.process_count())]
    arrays = {**{f.name: getattr(own, f.name) for f in dataclasses.fields(own)}, **found}
    by_prompt = {name: arrays.pop(name) for name in _BY_PROMPT}
    by_response = arrays
    whole = gather_rows(by_prompt, shares) | gather_rows(by_response, [settings.samples * n for n in shares])
    found = {name: whole.pop(name) for name in found}
    return Round(Rollouts(**whole), **found, seconds_sample=sampled - began, seconds_verify=verified - sampled)


_BY_PROMPT = ("prompt_tokens", "prompt_length", "rewards")
"""Arrays with an entry a prompt; all others have one a response."""


def draw(
    config: ModelConfig, params: Params, source: Source, settings: RlvrSettings, cursor: int, seed: int
) -> tuple[Round, np.ndarray, int]:
    """The groups of one step. With several `settings.rounds`, draws on until enough groups carry a signal.

    Groups whose verified rewards are all equal are replaced by the next ones that are mixed (dynamic sampling, DAPO,
    arXiv 2503.14476, section 3.2). Where the last round leaves too few, silent ones fill up.

    Args:
      cursor: prompts drawn before this step.

    Returns:
      Every group drawn, for statistics; which of them are for the update, int[prompts]; and the new cursor.
    """
    rounds: list[Round] = []
    mixed = np.zeros(0, bool)
    while len(rounds) < settings.rounds and mixed.sum() < settings.prompts:
        rounds.append(draw_round(config, params, source, settings, cursor, seed))
        cursor += settings.prompts
        mixed = np.concatenate([varies(part.rewards) for part in rounds])
    # One round keeps its order: nothing was asked to be replaced.
    order = np.argsort(~mixed, kind="stable") if settings.rounds > 1 else np.arange(len(mixed))
    return _join(rounds), order[: settings.prompts], cursor


def take_groups(rollouts: Rollouts, index: np.ndarray) -> Rollouts:
    """The rollouts of some prompts, in the order of `index`."""
    prompts = len(rollouts.prompt_length)
    n = len(rollouts.length) // prompts
    rows = (np.asarray(index)[:, None] * n + np.arange(n)).reshape(-1)
    fields = {f.name: getattr(rollouts, f.name) for f in dataclasses.fields(rollouts)}
    taken = {name: x[index if name in _BY_PROMPT else rows] for name, x in fields.items()}
    return Rollouts(**{**taken, "prompt_index": np.repeat(np.arange(len(index), dtype=np.int32), n)})


def round_metrics(drawn: Round) -> dict[str, float]:
    """Reward, lengths and openings of everything that was drawn."""
    names = [name.decode() for name in drawn.opening.tolist()]
    rewards = drawn.rewards
    return {
        "reward": float(np.nanmean(rewards)) if np.isfinite(rewards).any() else float("nan"),
        "length": float(drawn.rollouts.length.mean()),
        "truncated": float((drawn.rollouts.finish_reason == LENGTH).mean()),
        "no_verdict": float(drawn.no_verdict.mean()),
        **{f"opening_{name}": names.count(name) / len(names) for name in sorted(set(names))},
    }


def _widen(rollouts: Rollouts, width: int) -> Rollouts:
    padding = ((0, 0), (0, width - rollouts.prompt_tokens.shape[1]))
    return dataclasses.replace(rollouts, prompt_tokens=np.pad(rollouts.prompt_tokens, padding))


def _join(rounds: Sequence[Round]) -> Round:
    if len(rounds) == 1:
        return rounds[0]
    width = max(part.rollouts.prompt_tokens.shape[1] for part in rounds)
    parts = [_widen(part.rollouts, width) for part in rounds]
    fields = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(parts[0])}
    n = rounds[0].rewards.shape[1]
    fields["prompt_index"] = np.repeat(np.arange(len(fields["prompt_length"]), dtype=np.int32), n)
    cat = lambda name: np.concatenate([getattr(part, name) for part in rounds])  # noqa: E731
    return Round(
        Rollouts(**fields),
        cat("rewards"),
        cat("no_verdict"),
        cat("opening"),
        sum(part.seconds_sample for part in rounds),
        sum(part.seconds_verify for part in rounds),
    )
