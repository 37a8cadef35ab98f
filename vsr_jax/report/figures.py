"""The figures of a report. Each function takes plain numbers and returns a `matplotlib.figure.Figure`.

No pyplot and no changed global settings: figures can be made from any thread and leave nothing behind.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter
from numpy.typing import ArrayLike

from vsr_jax.report.colours import (
    BUCKET_COLOURS,
    BUCKET_TITLES,
    OPENING_TITLES,
    PolicyStyle,
    opening_colour,
    policy_styles,
)
from vsr_jax.report.files import write_atomic
from vsr_jax.support import BUCKETS

INK, SOFT, GRID = "#222222", "#666666", "#E4E4E4"
_SIZES = {"title": 11, "label": 9.5, "small": 8.5}
_LEGEND = {
    "frameon": False, "fontsize": _SIZES["small"], "labelcolor": INK, "handlelength": 1, "handleheight": 1,
    "columnspacing": 1.6,
}  # fmt: skip
_TOP_DOWN = tuple(reversed(BUCKETS))  # all-correct on top


@dataclass(frozen=True)
class Flow:
    """A bucket-transition matrix int[3, 3] (`support.transition_matrix`) between two named policies."""

    before: str
    after: str
    matrix: ArrayLike
    title: str = ""


@dataclass(frozen=True)
class Curve:
    """best@k of one policy: `values[i]` at budget `ks[i]`, within `low[i]` and `high[i]` where given."""

    policy: str
    ks: ArrayLike
    values: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None


@dataclass(frozen=True)
class TrainingRun:
    """What a run logged at each step.

    Attributes:
      name: of the policy that is trained.
      steps: step numbers.
      reward: mean reward of the step's samples.
      groups: share of groups by bucket (all_wrong, mixed, all_correct); only mixed groups carry a signal.
      openings: share of responses by opening class.
    """

    name: str
    steps: Sequence[int]
    reward: Sequence[float]
    groups: Mapping[str, Sequence[float]]
    openings: Mapping[str, Sequence[float]]


def bucket_flow(flows: Sequence[Flow]) -> Figure:
    """Alluvial diagrams, one a flow: how prompts move between buckets; ribbons keep the colour they come from.

    Raises:
      ValueError: no flows, or a matrix that is not 3 x 3 counts of at least one prompt.
    """
    if not flows:
        raise ValueError("need at least one flow")
    figure, axes = grid(len(flows), width=5.4, height=3.5)
    for axis, flow in zip(axes, flows, strict=True):
        _draw_flow(axis, flow)
    return figure


def best_at_k_curves(panels: Mapping[str, Sequence[Curve]], styles: Mapping[str, PolicyStyle] | None = None) -> Figure:
    """best@k against the budget, one panel a benchmark, with interval bands.

    Args:
      panels: curves by panel title.
      styles: of the policies (`policy_styles`), to match other figures.

    Raises:
      ValueError: nothing to draw, or lengths that differ within a curve.
    """
    if not panels or not all(panels.values()):
        raise ValueError("every panel needs at least one curve")
    styles = styles or policy_styles(curve.policy for curves in panels.values() for curve in curves)
    figure, axes = grid(len(panels), width=4.9, height=3.5, share_y=True)
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        last = {}
        for curve in curves:
            ks, values = np.asarray(curve.ks), np.asarray(curve.values, dtype=float)
            if ks.ndim != 1 or ks.shape != values.shape:
                raise ValueError(f"curve of {curve.policy!r}: ks and values must be lists of the same length")
            style = styles[curve.policy]
            if curve.low is not None and curve.high is not None:
                axis.fill_between(ks, curve.low, curve.high, color=style.colour, alpha=0.14, linewidth=0)
            marked = [i for i, k in enumerate(ks) if _is_power_of_two(k) or i == len(ks) - 1]
            axis.plot(
                ks, values, style.dash, color=style.colour, linewidth=1.8, marker=style.marker, markersize=4.5,
                markevery=marked,
            )  # fmt: skip
            last[curve.policy] = float(values[-1])
        longest = max(int(np.max(np.asarray(curve.ks))) for curve in curves)
        axis.set_xscale("log", base=2)
        powers = range(0, longest.bit_length(), -(-longest.bit_length() // 9))
        axis.xaxis.set_major_locator(FixedLocator([2**i for i in powers]))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(
            lambda value, _: f"{value:g}" if value < 10_000 else f"$2^{{{np.log2(value):g}}}$"
        )
        axis.set_ylim(-0.02, 1.02)
        axis.set_xlabel("Budget k (samples a prompt)")
        finish(axis, title)
        _end_labels(axis, longest, last, {name: styles[name].colour for name in last})
    axes[0].set_ylabel("best@k")
    return figure


def opening_bars(panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """Shares of opening classes as stacked bars: `panels[title][policy][class]`, a bar a policy.

    Raises:
      ValueError: nothing to draw, or the shares of a policy do not add up to 1.
    """
    if not panels or not all(panels.values()):
        raise ValueError("every panel needs at least one policy")
    classes = _class_order(name for policies in panels.values() for shares in policies.values() for name in shares)
    rows = max(len(policies) for policies in panels.values())
    figure, axes = grid(len(panels), width=5.2, height=1.25 + 0.42 * rows)
    for axis, (title, policies) in zip(axes, panels.items(), strict=True):
        for row, (policy, shares) in enumerate(policies.items()):
            if abs(sum(shares.values()) - 1) > 1e-6:
                raise ValueError(f"opening shares of {policy!r} in {title!r} add up to {sum(shares.values()):.4f}")
            left = 0.0
            for position, name in enumerate(classes):
                share = shares.get(name, 0.0)
                colour = opening_colour(name, position)
                axis.barh(row, share, left=left, height=0.68, color=colour, edgecolor="white", linewidth=0.8)
                if share >= 0.07:
                    axis.text(left + share / 2, row, f"{share:.0%}", ha="center", va="center",
                              fontsize=_SIZES["small"], color=_readable_on(colour))  # fmt: skip
                left += share
        axis.set_yticks(range(len(policies)), list(policies))
        axis.set_ylim(rows - 0.5, -0.5)
        axis.set_xlim(0, 1)
        axis.xaxis.set_major_formatter(PercentFormatter(1.0))
        axis.set_xlabel("Share of responses")
        finish(axis, title, with_grid=False)
        axis.spines["left"].set_visible(False)
        axis.tick_params(axis="y", length=0)
    _legend(figure, {OPENING_TITLES.get(name, name): opening_colour(name, i) for i, name in enumerate(classes)})
    return figure


def training_curves(runs: Sequence[TrainingRun], styles: Mapping[str, PolicyStyle] | None = None) -> Figure:
    """Reward, groups and openings by step, a column a run.

    Raises:
      ValueError: no runs, or a series whose length is not that of the steps.
    """
    if not runs:
        raise ValueError("need at least one run")
    styles = styles or policy_styles(run.name for run in runs)
    classes = _class_order(name for run in runs for name in run.openings)
    figure = Figure(figsize=(2.2 + 3.3 * len(runs), 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, len(runs), sharex="col", sharey="row", squeeze=False)
    for column, run in enumerate(runs):
        series = {"reward": run.reward, **run.groups, **run.openings}
        for name, values in series.items():
            if len(values) != len(run.steps):
                raise ValueError(f"run {run.name!r}: {name} has {len(values)} values for {len(run.steps)} steps")
        reward, groups, openings = axes[:, column]
        reward.plot(run.steps, run.reward, color=styles[run.name].colour, linewidth=1.8)
        finish(reward, run.name)
        _stack(groups, run.steps, run.groups, {name: BUCKET_COLOURS[name] for name in BUCKETS})
        _stack(openings, run.steps, run.openings, {name: opening_colour(name, i) for i, name in enumerate(classes)})
        openings.set_xlabel("Training step")
    rewards = [value for run in runs for value in run.reward]
    axes[0, 0].set_ylim(min(0.0, *rewards), max(rewards) * 1.05 or 1.0)
    for axis, label in zip(axes[:, 0], ("Mean reward", "Groups of samples", "Openings"), strict=True):
        axis.set_ylabel(label)
    _side_legend(axes[1, -1], {BUCKET_TITLES[name]: BUCKET_COLOURS[name] for name in _TOP_DOWN})
    # Top to bottom as stacked.
    _side_legend(axes[2, -1], {name: opening_colour(name, i) for i, name in reversed(list(enumerate(classes)))})
    return figure


def png_bytes(figure: Figure, dpi: int = 160) -> bytes:
    """The figure as a PNG file; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def svg_bytes(figure: Figure) -> bytes:
    """The figure as an SVG file with text as outlines, so that it looks the same without our fonts."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "vsr", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def save(figure: Figure, path_without_suffix: str | Path) -> tuple[Path, Path]:
    """Writes `<path>.png` and `<path>.svg`, each whole or not at all; returns both paths."""
    base = str(path_without_suffix)
    return write_atomic(f"{base}.png", png_bytes(figure)), write_atomic(f"{base}.svg", svg_bytes(figure))


def grid(panels: int, width: float, height: float, share_y: bool = False) -> tuple[Figure, Sequence[Axes]]:
    """A figure of panels, at most two a row, so that a page shows text at its own size."""
    columns = min(panels, 2)
    rows = -(-panels // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False, sharey=share_y).flat)
    for unused in axes[panels:]:
        unused.remove()
    return figure, axes[:panels]


def finish(axis: Axes, title: str, with_grid: bool = True) -> None:
    """Title at the left, quiet axes, grid lines behind."""
    axis.set_title(title, fontsize=_SIZES["title"], color=INK, loc="left", pad=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#999999")
    axis.tick_params(colors=SOFT, labelcolor=INK, labelsize=_SIZES["small"])
    axis.xaxis.label.set(fontsize=_SIZES["label"], color=INK)
    axis.yaxis.label.set(fontsize=_SIZES["label"], color=INK)
    axis.set_axisbelow(True)
    if with_grid:
        axis.grid(axis="y", color=GRID, linewidth=0.8)


def _stack(axis: Axes, steps: Sequence[int], series: Mapping[str, Sequence[float]], colours: Mapping[str, str]) -> None:
    names = [name for name in colours if name in series]
    axis.stackplot(steps, *(series[name] for name in names), colors=[colours[name] for name in names], linewidth=0)
    axis.set_ylim(0, 1)
    axis.set_xlim(steps[0], steps[-1] if len(steps) > 1 else steps[0] + 1)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    finish(axis, "", with_grid=False)


def _draw_flow(axis: Axes, flow: Flow) -> None:
    matrix = np.asarray(flow.matrix)
    if matrix.shape != (3, 3) or matrix.sum() <= 0 or (matrix < 0).any():
        raise ValueError(f"flow {flow.before!r} to {flow.after!r}: need 3 x 3 counts of at least one prompt")
    order = [BUCKETS.index(bucket) for bucket in _TOP_DOWN]
    shares = matrix[np.ix_(order, order)] / matrix.sum()
    left, right = _strata(shares.sum(axis=1)), _strata(shares.sum(axis=0))
    used_left, used_right = left.copy(), right.copy()
    bar = 0.045
    for i, source in enumerate(_TOP_DOWN):
        for j in range(3):
            height = shares[i, j]
            if height == 0:
                continue
            _ribbon(axis, bar, 1 - bar, used_left[i], used_right[j], height, BUCKET_COLOURS[source])
            used_left[i] -= height
            used_right[j] -= height
    for side, tops, sums, counts in (
        (0.0, left, shares.sum(axis=1), matrix.sum(axis=1)[order]),
        (1.0, right, shares.sum(axis=0), matrix.sum(axis=0)[order]),
    ):
        middles = _spread(tops - sums / 2, 0.115)
        for bucket, top, share, count, middle in zip(_TOP_DOWN, tops, sums, counts, middles, strict=True):
            corner = side if side == 0 else side - bar
            axis.add_patch(Rectangle((corner, top - share), bar, share, color=BUCKET_COLOURS[bucket], linewidth=0))
            axis.text(
                side - 0.025 if side == 0 else side + 0.025,
                middle,
                f"{BUCKET_TITLES[bucket]}\n{share:.0%} ({count})",
                ha="right" if side == 0 else "left",
                va="center",
                fontsize=_SIZES["small"],
                color=INK if count else SOFT,
                linespacing=1.15,
            )
    for side, name in ((0.0, flow.before), (1.0, flow.after)):
        axis.text(side, 1.09, name, ha="left" if side == 0 else "right", fontsize=_SIZES["label"],
                  fontweight="bold", color=INK)  # fmt: skip
    axis.set_xlim(-0.3, 1.3)
    axis.set_ylim(-0.03, 1.16)
    axis.set_title(flow.title, fontsize=_SIZES["title"], color=INK, loc="left", pad=6)
    axis.axis("off")


def _strata(sums: np.ndarray, gap: float = 0.02) -> np.ndarray:
    """Tops of three stacked bars, from above, that together with their gaps fill a little more than 1."""
    below = np.cumsum(sums) - sums + gap * np.arange(len(sums))
    return 1 + gap - below


def _ribbon(axis: Axes, x0: float, x1: float, top0: float, top1: float, height: float, colour: str) -> None:
    middle = (x0 + x1) / 2
    move, line, curve = Outline.MOVETO, Outline.LINETO, Outline.CURVE4
    points = [
        (x0, top0), (middle, top0), (middle, top1), (x1, top1),
        (x1, top1 - height), (middle, top1 - height), (middle, top0 - height), (x0, top0 - height), (x0, top0),
    ]  # fmt: skip
    codes = [move, curve, curve, curve, line, curve, curve, curve, Outline.CLOSEPOLY]
    axis.add_patch(PathPatch(Outline(points, codes), facecolor=colour, alpha=0.45, linewidth=0))


def _end_labels(axis: Axes, x: float, values: Mapping[str, float], colours: Mapping[str, str]) -> None:
    """Names at the ends of lines, pushed apart where they would touch."""
    names = sorted(values, key=lambda name: -values[name])
    places = _spread(np.array([values[name] for name in names]), 0.075)
    for name, y in zip(names, places, strict=True):
        axis.annotate(name, (x, y), xytext=(7, 0), textcoords="offset points", va="center", annotation_clip=False,
                      fontsize=_SIZES["small"], color=colours[name], fontweight="bold")  # fmt: skip


def _spread(centres: np.ndarray, distance: float) -> np.ndarray:
    """Descending centres, moved as little as a downward and an upward pass need to keep them apart."""
    placed = centres.astype(float).copy()
    for i in range(1, len(placed)):
        placed[i] = min(placed[i], placed[i - 1] - distance)
    floor = min(0.0, float(centres.min())) if len(placed) else 0.0
    if len(placed) and placed[-1] < floor:
        placed[-1] = floor
        for i in range(len(placed) - 2, -1, -1):
            placed[i] = max(placed[i], placed[i + 1] + distance)
    return placed


def _legend(figure: Figure, colours: Mapping[str, str]) -> None:
    figure.legend(*_keys(colours), loc="outside upper left", ncols=min(len(colours), 4), **_LEGEND)


def _side_legend(axis: Axes, colours: Mapping[str, str]) -> None:
    axis.legend(*_keys(colours), loc="upper left", bbox_to_anchor=(1.02, 1.02), borderaxespad=0, **_LEGEND)


def _keys(colours: Mapping[str, str]) -> tuple[list[Rectangle], list[str]]:
    return [Rectangle((0, 0), 1, 1, color=colour, linewidth=0) for colour in colours.values()], list(colours)


def _class_order(names) -> list[str]:
    """Known classes first, Other last, the user's own between."""
    present = dict.fromkeys(names)
    known = [name for name in OPENING_TITLES if name in present and name != "Other"]
    own = [name for name in present if name not in OPENING_TITLES]
    return [*known, *own, *(["Other"] if "Other" in present else [])]


def _readable_on(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else INK


def _is_power_of_two(k: float) -> bool:
    return k >= 1 and int(k) == k and int(k) & (int(k) - 1) == 0
