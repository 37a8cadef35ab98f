"""What a measurement says beyond its means, and what changed between two of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vsr_jax import support
from vsr_jax.study.grid import Cell

DRAWS = 200
"""Resamples for fits of the beta-binomial model."""


@dataclass(frozen=True)
class Spread:
    """How varied a policy's responses are, and how far its support reaches.

    Attributes:
      distinct: mean number of different answers a prompt; different texts where a task has no answer to extract.
      entropy: of the pass-count distribution over prompts, in nats; None where verdicts are missing.
      half_life, half_life_low, half_life_high: samples until a new prompt's chance of a success passes one half.
      hold_out: how the first half of the samples predicts the second; None with one sample or missing verdicts.
    """

    distinct: float
    entropy: float | None
    half_life: float
    half_life_low: float
    half_life_high: float
    hold_out: support.HoldOut | None


def spread(cell: Cell) -> Spread:
    """Computes a cell's spread. The half-life is NaN where no sample has a verdict."""
    passes = cell.result.account.passes
    whole = not np.isnan(passes).any()
    answers: dict[str, set[str]] = {row.id: set() for row in cell.rows}
    extracted = cell.rows[0].task == "math"
    for item in cell.table.select(["prompt_id", "text", "detail", "status"]).to_pylist():
        if not extracted:
            answers[item["prompt_id"]].add(item["text"])
        elif item["status"] in ("correct", "wrong"):
            answers[item["prompt_id"]].add(item["detail"])
    nan = float("nan")
    lives = None if np.isnan(passes).all() else support.bootstrap_half_life(passes, draws=DRAWS)
    return Spread(
        distinct=float(np.mean([len(found) for found in answers.values()])),
        entropy=support.pass_count_entropy(passes) if whole else None,
        half_life=lives.policy if lives else nan,
        half_life_low=lives.policy_low if lives else nan,
        half_life_high=lives.policy_high if lives else nan,
        hold_out=support.hold_out_check(passes) if whole and passes.shape[1] > 1 else None,
    )


@dataclass(frozen=True)
class Contrast:
    """A policy against another on the same prompts.

    Attributes:
      before, after, benchmark: names.
      mean: change of mean@n; best: change of unbiased best@k for each k of `budgets`.
      compared: prompts with enough verdicts on both sides.
      transition: between buckets, with the prompts gained and lost.
      openings: change of each opening share.
    """

    before: str
    after: str
    benchmark: str
    mean: support.PairedDifference
    budgets: tuple[int, ...]
    best: support.PairedDifference
    compared: int
    transition: support.Transition
    openings: Mapping[str, float]


def budgets(samples: int) -> tuple[int, ...]:
    """1, 4, 8, 16, ... up to n, and n itself."""
    powers = [k for k in (1, 4, 8, 16, 32, 64, 128, 256) if k < samples]
    return (*powers, samples)


def contrast(before: Cell, after: Cell) -> Contrast:
    """Compares two cells of one benchmark; prompts without enough verdicts on either side are left out of means."""
    passes = [cell.result.account.passes for cell in (before, after)]
    ks = budgets(passes[0].shape[1])
    means = [support.mean_per_prompt(p, missing="omit") for p in passes]
    curves = [support.best_at_k_curve_per_prompt(p, ks, missing="omit") for p in passes]
    held = np.isfinite(np.column_stack([*means, *curves])).all(axis=1)
    if not held.any():
        held, means = np.ones(1, bool), [np.zeros(1)] * 2
        curves = [np.zeros((1, len(ks)))] * 2
    return Contrast(
        before=before.policy,
        after=after.policy,
        benchmark=before.benchmark,
        mean=support.paired_bootstrap(*(m[held] for m in means)),
        budgets=ks,
        best=support.paired_bootstrap(*(c[held] for c in curves)),
        compared=int(held.sum()),
        transition=support.transition(before.result.buckets, after.result.buckets),
        openings={name: after.result.openings[name] - share for name, share in before.result.openings.items()},
    )


def moved_other(openings: Mapping[str, float], fallback: str = "Other") -> dict[str, Mapping[str, float]]:
    """Opening shares as classified, and with all of `Other` counted as DRI, or as DAI.

    No rule set names every opening: a conclusion that changes its sign between these is not one.
    """
    other = openings.get(fallback, 0.0)
    out: dict[str, Mapping[str, float]] = {"as classified": openings}
    for name in ("DRI", "DAI"):
        if name in openings:
            out[f"{fallback} as {name}"] = {**openings, name: openings[name] + other, fallback: 0.0}
    return out


def correlations(cells: Sequence[Cell], ks: Sequence[int]) -> dict[tuple[str, int], float]:
    """Pearson r over checkpoints between each opening share and unbiased best@k; NaN where either does not vary."""
    out = {}
    for name in cells[0].result.openings:
        shares = np.array([cell.result.openings[name] for cell in cells])
        for k in ks:
            best = np.array([cell.result.curve["unbiased"][k - 1] for cell in cells])
            varied = shares.std() > 1e-12 and best.std() > 1e-12
            out[name, k] = float(np.corrcoef(shares, best)[0, 1]) if varied else float("nan")
    return out
