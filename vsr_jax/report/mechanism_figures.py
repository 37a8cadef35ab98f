"""Figures of the mechanism: divergence by position, first tokens, forced openings. Plain data in, figures out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter
from numpy.typing import ArrayLike

from vsr_jax.report.colours import opening_colour, policy_styles
from vsr_jax.report.figures import INK, SOFT, finish, grid
from vsr_jax.report.tables import Estimate

_SMALL, _LABEL = 8.5, 9.5
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


@dataclass(frozen=True)
class PositionCurve:
    """Mean divergence of a pair of policies at each response position (1, 2, ...); NaN where no response is so long."""

    pair: str
    exact: ArrayLike
    truncated: ArrayLike


@dataclass(frozen=True)
class TokenBar:
    """A first token: its text, the opening class it leads to, and its mean probability under each policy."""

    text: str
    opening: str
    probs: Mapping[str, float]


def js_by_position(panels: Mapping[str, Sequence[PositionCurve]]) -> Figure:
    """JS against the response position on logarithmic axes; the truncated form is dotted. A panel a set of responses.

    Raises:
      ValueError: nothing to draw.
    """
    if not panels or not all(panels.values()):
        raise ValueError("every panel needs at least one curve")
    figure, axes = grid(len(panels), width=5.4, height=3.7, share_y=True)
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for number, curve in enumerate(curves):
            exact, truncated = (np.asarray(x, float) for x in (curve.exact, curve.truncated))
            where = np.arange(1, len(exact) + 1)
            colour = _COLOURS[number % len(_COLOURS)]
            axis.plot(where, exact, color=colour, linewidth=1.6, label=curve.pair)
            axis.plot(where, truncated, ":", color=colour, linewidth=1.2)
            axis.plot(where[:1], exact[:1], "o", color=colour, markersize=5)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_xlabel("Response position (token)")
        finish(axis, title)
        axis.legend(frameon=False, fontsize=_SMALL, labelcolor=INK)
    axes[0].set_ylabel("JS divergence (nats)")
    return figure


def ratio_bars(rows: Mapping[str, Mapping[str, Estimate]]) -> Figure:
    """First token over interior: a group of bars a set of responses, a bar a pair of policies, on a log axis.

    Raises:
      ValueError: nothing to draw.
    """
    bars = [(title, pair, value) for title, pairs in rows.items() for pair, value in pairs.items()]
    bars = [bar for bar in bars if np.isfinite(bar[2].value)]
    if not bars:
        raise ValueError("need at least one finite ratio")
    figure, axis = _single(5.8, 1.1 + 0.42 * len(bars))
    pairs = list(dict.fromkeys(pair for _, pair, _ in bars))
    for row, (_, pair, value) in enumerate(bars):
        colour = _COLOURS[pairs.index(pair) % len(_COLOURS)]
        axis.barh(row, value.value, color=colour, height=0.62, alpha=0.85)
        axis.plot([value.low, value.high], [row, row], color=INK, linewidth=1.2)
        axis.annotate(f"{value.value:.1f}x", (max(value.high, value.value), row), xytext=(5, 0),
                      textcoords="offset points", va="center", fontsize=_SMALL, color=INK)  # fmt: skip
    labels = [pair if len(rows) == 1 else f"{pair}\nalong {title}" for title, pair, _ in bars]
    axis.set_yticks(range(len(bars)), labels)
    axis.set_ylim(len(bars) - 0.5, -0.5)
    axis.set_xscale("log")
    axis.set_xlim(left=min(1.0, *(bar[2].value for bar in bars)))
    axis.set_xlabel("JS of the first token over JS of the interior")
    finish(axis, "", with_grid=False)
    return figure


def first_token_bars(tokens: Sequence[TokenBar]) -> Figure:
    """Mean probability of the first tokens that matter, a bar a policy; a square shows the opening they lead to.

    Raises:
      ValueError: no tokens.
    """
    if not tokens:
        raise ValueError("need at least one token")
    policies = list(tokens[0].probs)
    styles = policy_styles(policies)
    figure, axis = _single(5.8, 1.0 + 0.36 * len(tokens))
    height = 0.8 / len(policies)
    for row, token in enumerate(tokens):
        for number, policy in enumerate(policies):
            y = row + (number - (len(policies) - 1) / 2) * height
            label = policy if row == 0 else None
            axis.barh(y, token.probs[policy], height=height * 0.92, color=styles[policy].colour, label=label)
        axis.plot(-0.015, row, "s", color=opening_colour(token.opening), markersize=6, clip_on=False)
    axis.set_yticks(range(len(tokens)), [f"{token.text!r} {token.opening}" for token in tokens])
    axis.tick_params(axis="y", length=0, pad=10)
    axis.set_ylim(len(tokens) - 0.5, -0.5)
    axis.set_xlim(0, 1)
    axis.set_xlabel("Mean probability as first token")
    axis.legend(frameon=False, fontsize=_SMALL, labelcolor=INK, loc="lower right")
    finish(axis, "", with_grid=False)
    return figure


def intervention_dots(panels: Mapping[str, Mapping[str, Mapping[str, Estimate]]], measures: Sequence[str]) -> Figure:
    """What each condition reaches: `panels[title][condition][measure]` with intervals, a marker a measure.

    Raises:
      ValueError: nothing to draw.
    """
    if not panels or not all(panels.values()):
        raise ValueError("every panel needs at least one condition")
    rows = max(len(conditions) for conditions in panels.values())
    figure, axes = grid(len(panels), width=5.6, height=1.2 + 0.36 * rows)
    for axis, (title, conditions) in zip(axes, panels.items(), strict=True):
        for number, measure in enumerate(measures):
            colour = _COLOURS[number % len(_COLOURS)]
            for row, values in enumerate(conditions.values()):
                value = values[measure]
                y = row + (number - (len(measures) - 1) / 2) * 0.24
                axis.plot([value.low, value.high], [y, y], color=colour, linewidth=1.5, alpha=0.6)
                axis.plot(value.value, y, "osD"[number % 3], color=colour, markersize=5.5,
                          label=measure if row == 0 else None)  # fmt: skip
        axis.set_yticks(range(len(conditions)), list(conditions))
        axis.set_ylim(rows - 0.5, -0.5)
        axis.set_xlim(-0.02, 1.02)
        finish(axis, title, with_grid=False)
        axis.grid(axis="x", color="#E4E4E4", linewidth=0.8)
        axis.legend(frameon=False, fontsize=_SMALL, labelcolor=INK, loc="best")
    return figure


def sweep_curve(positions: Sequence[int], series: Mapping[str, Sequence[float]], free: Mapping[str, float]) -> Figure:
    """What one forced token does at each position; the dotted line is the free policy.

    Raises:
      ValueError: no positions, or a series of another length.
    """
    if not positions:
        raise ValueError("need at least one position")
    figure, axis = _single(5.6, 3.4)
    for number, (name, values) in enumerate(series.items()):
        if len(values) != len(positions):
            raise ValueError(f"series {name!r} has {len(values)} values for {len(positions)} positions")
        colour = _COLOURS[number % len(_COLOURS)]
        axis.plot(positions, values, "-o", color=colour, linewidth=1.6, markersize=4.5, label=name)
        if name in free:
            axis.axhline(free[name], color=colour, linestyle=":", linewidth=1.2)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_ylim(-0.02, 1.02)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.set_xlabel("Position of the forced token")
    axis.legend(frameon=False, fontsize=_SMALL, labelcolor=INK)
    finish(axis, "")
    return figure


def trajectory(
    checkpoints: Sequence[str], best: Mapping[int, Sequence[float]], openings: Mapping[str, Sequence[float]]
) -> Figure:
    """best@k for some budgets and opening shares over checkpoints.

    Raises:
      ValueError: fewer than two checkpoints.
    """
    if len(checkpoints) < 2:
        raise ValueError("a trajectory needs at least two checkpoints")
    figure, (left, right) = grid(2, width=4.6, height=3.4)
    where = range(len(checkpoints))
    shades = np.linspace(0.35, 1.0, len(best))
    for (k, values), shade in zip(best.items(), shades, strict=True):
        left.plot(where, values, "-o", color="#0072B2", alpha=shade, markersize=4, label=f"best@{k}")
    for number, (name, values) in enumerate(openings.items()):
        right.plot(where, values, "-o", color=opening_colour(name, number), markersize=4, label=name)
    for axis, title in ((left, "Support"), (right, "Openings")):
        axis.set_xticks(where, checkpoints, rotation=30, ha="right")
        axis.set_ylim(-0.02, 1.02)
        axis.legend(frameon=False, fontsize=_SMALL, labelcolor=INK)
        finish(axis, title)
    return figure


def _single(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.tick_params(colors=SOFT, labelsize=_LABEL)
    return figure, axis
