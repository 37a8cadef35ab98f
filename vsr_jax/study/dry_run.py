"""What a study would do: its stages with their inputs and an estimate, and the data that it would read."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from vsr_jax.data.benchmarks import BENCHMARKS, load_benchmark
from vsr_jax.errors import UserError
from vsr_jax.study.cost import Assumptions, device_of, device_seconds, fewest_devices, model_sizes
from vsr_jax.study.preset import Preset
from vsr_jax.study.presets_real import benchmarks_of
from vsr_jax.study.runs import stage_status
from vsr_jax.study.study_run import study_stages


def dry_run(
    preset: Preset,
    seeds: Sequence[int],
    root: Path,
    only: Sequence[str] = (),
    *,
    chip: str = "v5p",
    given: Assumptions | None = None,
) -> str:
    """Data and stages as Markdown tables. Reads no model and nothing from the hub.

    Args:
      root: run folder, whose finished stages are marked.
      only: as in `study_stages`.
      chip: one of `cost.DEVICES`.
      given: what the estimate takes for granted.

    Raises:
      UserError: unknown chip, or a model whose sizes are not known.
    """
    device, given, config = device_of(chip), given or Assumptions(), model_sizes(preset)
    stages = study_stages(preset, seeds, only)
    lines, hours, left, held = [], 0.0, 0.0, 1
    for stage, (name, state) in zip(stages, stage_status(stages, root), strict=True):
        needed = ", ".join(dict.fromkeys(source.name for source in stage.inputs)) or "-"
        took = device_seconds(config, stage.work, preset.slots, device, given) / 3600
        count = fewest_devices(config, stage.work, preset.slots, device, given)
        hours, left, held = hours + took, left + (0.0 if state == "done" else took), max(held, count)
        lines.append(f"| {name} | {needed} | {count} x {chip} | {took:.2f} | {state} |")
    head = ["| stage | inputs | fewest devices | device-hours | state |", "|---|---|---|---|---|"]
    done = sum(line.endswith("| done |") for line in lines)
    sums = [
        f"{len(stages)} stages, {done} done; {hours:,.1f} device-hours of {chip}, {left:,.1f} of them left.",
        f"Estimated, not measured: {given}. Compiling, verifiers and links between devices are not counted.",
    ]
    if held > 1:
        sums.append(
            f"A stage is held by {held} devices at most by this count, which has no activations in it; "
            "`vsr study` places a stage on one device, so that this is a plan and not yet a run."
        )
    data = [] if preset.world else [*data_table(preset), ""]
    return "\n".join([*data, *head, *lines, "", *sums])


def data_table(preset: Preset) -> list[str]:
    """Each benchmark with the rows that its file has and the rows that the whole has."""
    lines = ["| benchmark | from | rows | of | |", "|---|---|---|---|---|"]
    for name in benchmarks_of(preset):
        whole = BENCHMARKS[name].rows if name != "math500_128" else 128
        if name not in preset.files:
            lines.append(f"| {name} | hub: {BENCHMARKS[name].hub.dataset} | not read | {whole:,} | |")
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the table says how many rows lack
                count = len(load_benchmark(name, preset.files[name].path))
            says = "complete" if count == whole else f"{whole - count:,} lack"
            lines.append(f"| {name} | {preset.files[name].path.name} | {count:,} | {whole:,} | {says} |")
        except UserError as error:
            lines.append(f"| {name} | {preset.files[name].path.name} | refused | {whole:,} | {error} |")
    return lines
