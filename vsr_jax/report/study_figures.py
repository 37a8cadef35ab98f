"""Figures of a whole study."""

from collections.abc import Mapping

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vsr_jax.report.colours import policy_styles
from vsr_jax.report.figures import INK, SOFT, finish
from vsr_jax.report.tables import Estimate


def trade_off(points: Mapping[str, tuple[Estimate, Estimate]], x_label: str, y_label: str) -> Figure:
    """One point a policy, with interval lines on both axes; the first is drawn as a reference cross.

    Raises:
      ValueError: no points.
    """
    if not points:
        raise ValueError("need at least one policy")
    figure = Figure(figsize=(7.4, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    styles = policy_styles(points)
    for number, (name, (x, y)) in enumerate(points.items()):
        colour = styles[name].colour
        axis.plot([x.low, x.high], [y.value, y.value], color=colour, linewidth=1, alpha=0.5)
        axis.plot([x.value, x.value], [y.low, y.high], color=colour, linewidth=1, alpha=0.5)
        marker = "P" if number == 0 else styles[name].marker
        axis.plot([x.value], [y.value], marker, color=colour, markersize=8, label=name, linestyle="none")
    for reference, line in (
        (next(iter(points.values()))[0], axis.axvline),
        (next(iter(points.values()))[1], axis.axhline),
    ):
        line(reference.value, color=SOFT, linestyle=":", linewidth=1)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    finish(axis, "", with_grid=False)
    figure.legend(loc="outside right center", frameon=False, fontsize=8.5, labelcolor=INK)
    return figure
