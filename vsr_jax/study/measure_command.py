"""`vsr measure`: policies on benchmarks, from files or the hub, to tables, figures and a page."""

from pathlib import Path
from typing import Any

from vsr_jax import report
from vsr_jax.study.grid import decoding, load_sources, measure_grid
from vsr_jax.study.measure_report import write_report
from vsr_jax.study.trajectory import checkpoint_models

_DECODING = ("samples", "max_tokens", "temperature", "top_p", "top_k", "seed")


def measure(
    model: tuple[str, ...],
    benchmark: tuple[str, ...],
    out: Path,
    *,
    names: tuple[str, ...],
    preset: str,
    trajectory: bool,
    data: tuple[Path, ...],
    limit: int | None,
    spread: bool,
    **options: Any,
) -> str:
    """Measures and returns what to print. Arguments are those of the command.

    Writes the rollouts of every policy on every benchmark, tables, figures and `index.html` into `out`.
    """
    if trajectory and len(model) == 1:
        model, names = checkpoint_models(Path(model[0]), out / "models")
    decoded = decoding(preset, **{name: options.pop(name) for name in _DECODING})
    cells = measure_grid(model, names, load_sources(benchmark, data, limit, spread=spread), decoded, out, **options)
    page, made = write_report(cells, out, successive=trajectory)
    names_shown = ["support", "buckets", "openings", "spread", "contrasts", *(n for n in made if n.startswith("traj"))]
    notes = [
        f"note: {cell.policy}, {cell.benchmark}: {warning}"
        for cell in cells
        for warning in cell.result.account.warnings
    ]
    where = [f"rollouts: {cell.folder / 'rollouts.parquet'}" for cell in cells]
    shown = [report.to_markdown(made[name]) for name in names_shown if name in made]
    return "\n".join([*shown, *notes, *where, f"report: {page}"])
