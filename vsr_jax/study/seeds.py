"""Numbers over training seeds: a value a prompt and seed, its mean, and an interval from resampling both.

Evaluation prompts are the same under every seed, so a resample draws seeds and prompts crosswise. With one seed the
interval says nothing about other seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vsr_jax import support
from vsr_jax.data.rows import Row
from vsr_jax.report import Estimate
from vsr_jax.study.kinds import Measured, bench_rows, rules_of
from vsr_jax.study.kinds_mechanism import Forced
from vsr_jax.study.measure import Measurement
from vsr_jax.study.preset import Preset

Floats = NDArray[np.float64]

What = str | int
"""A number of each prompt: `mean`, a budget k for unbiased best@k, a bucket, an opening class, or `chain`
(responses that show steps)."""


@dataclass(frozen=True)
class Found:
    """One measurement under one seed; `openings` and `chain` are shares of responses, float64[prompts]."""

    result: Measurement
    openings: Mapping[str, Floats]
    chain: Floats

    def values(self, what: What) -> Floats:
        """float64[prompts]; NaN where a prompt has too few verdicts."""
        passes = self.result.account.passes
        if what == "mean":
            return support.mean_per_prompt(passes, missing="omit")
        if isinstance(what, int):
            return support.best_at_k_per_prompt(passes, what, "unbiased", missing="omit")
        if what == "chain":
            return self.chain
        if what in support.BUCKETS:
            return np.array([name == what for name in self.result.buckets.labels], float)
        return self.openings.get(what, np.zeros(len(passes)))


def found(preset: Preset, measured: Measured, root: Path) -> Found:
    """Reads a measurement."""
    return _found(preset, measured.result(preset, root), measured.table(root), bench_rows(preset, measured.bench))


def found_forced(preset: Preset, forced: Forced, root: Path, condition: str) -> Found:
    """Reads a condition of an intervention."""
    rows = bench_rows(preset, forced.bench)[: preset.intervene_prompts]
    return _found(preset, forced.result(preset, root, condition), forced.table(root, condition), rows)


def _found(preset: Preset, result: Measurement, table: pa.Table, rows: Sequence[Row]) -> Found:
    rules = rules_of(preset)
    place = {row.id: i for i, row in enumerate(rows)}
    owner = np.array([place[name] for name in table["prompt_id"].to_pylist()])
    count = np.maximum(np.bincount(owner, minlength=len(rows)), 1)
    openings = np.array(table["opening"].to_pylist())
    share = lambda held: np.bincount(owner, held.astype(float), minlength=len(rows)) / count  # noqa: E731
    chains = np.array([support.has_chain(text, rules=rules) for text in table["text"].to_pylist()])
    return Found(result, {name: share(openings == name) for name in rules.names}, share(chains))


def estimate(seeds: Sequence[Found], what: What) -> Estimate:
    """A number's mean over seeds and prompts."""
    return over_seeds([found.values(what) for found in seeds])


def change(before: Sequence[Found], after: Sequence[Found], what: What) -> Estimate:
    """Mean change of a number, paired by seed and prompt."""
    return over_seeds([b.values(what) - a.values(what) for a, b in zip(before, after, strict=True)])


def over_seeds(values: Sequence[Floats], *, draws: int = 4000, seed: int = 0) -> Estimate:
    """The mean of float64[prompts] per seed, NaN left out, with its 95 % interval from resampling prompts and seeds."""
    table = np.stack(values)
    draw = np.random.default_rng(seed)
    seeds, prompts = table.shape
    by_seed = draw.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)
    by_prompt = draw.multinomial(prompts, np.full(prompts, 1 / prompts), size=draws)
    known = ~np.isnan(table)
    if not known.any():
        return Estimate(float("nan"), float("nan"), float("nan"))
    filled = np.where(known, table, 0.0)
    sums = np.einsum("ds,sp,dp->d", by_seed, filled, by_prompt, optimize=True)
    counts = np.einsum("ds,sp,dp->d", by_seed, known.astype(float), by_prompt, optimize=True)
    drawn = sums[counts > 0] / counts[counts > 0]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(float(filled.sum() / known.sum()), float(low), float(high))


def across(values: Sequence[float]) -> Estimate:
    """The mean of one number a seed, with the smallest and the largest: too few to resample. One has no interval."""
    held = np.array([value for value in values if np.isfinite(value)])
    nan = float("nan")
    if len(held) < 2:
        return Estimate(float(held[0]) if len(held) else nan, nan, nan)
    return Estimate(float(held.mean()), float(held.min()), float(held.max()))


def openings(seeds: Sequence[Found]) -> dict[str, float]:
    """Mean share of each opening class."""
    names = seeds[0].openings
    return {name: float(np.mean([found.openings[name].mean() for found in seeds])) for name in names}


def flow(before: Sequence[Found], after: Sequence[Found]) -> Any:
    """Bucket transitions int[3, 3], added over seeds."""
    pairs = zip(before, after, strict=True)
    return sum(np.asarray(support.transition_matrix(a.result.buckets, b.result.buckets)) for a, b in pairs)


def curve(seeds: Sequence[Found]) -> tuple[Floats, Floats, Floats]:
    """best@k for k = 1..n with its interval."""
    n = seeds[0].result.account.passes.shape[1]
    tables = [support.best_at_k_curve_per_prompt(f.result.account.passes, None, missing="omit") for f in seeds]
    points = [over_seeds([table[:, k] for table in tables], draws=1000) for k in range(n)]
    return tuple(np.array([getattr(p, name) for p in points]) for name in ("value", "low", "high"))  # type: ignore[return-value]
