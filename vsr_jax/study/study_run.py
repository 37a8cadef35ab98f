"""Running a study: the stages of its experiments, each once, and one report."""

import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import jax

from vsr_jax.data.overlap import overlap
from vsr_jax.errors import UserError
from vsr_jax.parallel.distributed import agree
from vsr_jax.study.kinds import bench_rows, train_rows
from vsr_jax.study.preset import Preset
from vsr_jax.study.runs import Stage, run_stages, stage_status


def chosen_experiments(preset: Preset, only: Sequence[str] = ()) -> dict[int, ModuleType]:
    """The experiments by number, without those that the preset leaves out.

    Args:
      only: numbers among other patterns; none of them keeps all.
    """
    from experiments import EXPERIMENTS

    numbers = {int(name) for name in only if name.isdigit()}
    if unknown := sorted(numbers - set(EXPERIMENTS)):
        raise UserError(f"--only {unknown[0]}: no such experiment; there are 1 to {max(EXPERIMENTS)}")
    for number in sorted(numbers & set(preset.skip)):
        raise UserError(f"--only {number}: {preset.skip[number]}")
    return {n: e for n, e in EXPERIMENTS.items() if n not in preset.skip and (not numbers or n in numbers)}


def ordered(leaves: Iterable[Stage]) -> list[Stage]:
    """The stages with all that they depend on, inputs first, each once."""
    found: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        key = stage.key()
        if key not in found:
            for needed in stage.inputs:
                visit(needed)
            found[key] = stage

    for leaf in leaves:
        visit(leaf)
    return list(found.values())


def study_stages(preset: Preset, seeds: Sequence[int], only: Sequence[str] = ()) -> list[Stage]:
    """Every stage of the chosen experiments under every seed, the first seed first.

    Args:
      only: experiment numbers, and patterns of stage names such as `measure-*`; a stage brings what it depends on.

    Raises:
      UserError: nothing has such a name.
    """
    experiments = chosen_experiments(preset, only)
    stages = ordered(stage for seed in seeds for e in experiments.values() for stage in e.stages(preset, seed))
    patterns = [name for name in only if not name.isdigit()]
    if not patterns:
        return stages
    held = [stage for stage in stages if any(fnmatch(stage.name, pattern) for pattern in patterns)]
    if not held:
        names = ", ".join(sorted({stage.name for stage in stages}))
        raise UserError(f"--only {' '.join(patterns)}: no stage has such a name; there are {names}")
    return ordered(held)


def run_study(preset: Preset, seeds: Sequence[int], root: Path, only: Sequence[str] = ()) -> Path:
    """Runs what is not done in `root` and returns the report page; of several processes the first one writes it."""
    from vsr_jax.study.study_report import write_report

    stages = study_stages(preset, seeds, only)
    agree("the stages of the study", [stage.key() for stage in stages])
    if first := jax.process_index() == 0:
        for line in overlaps(preset, seeds[0]):
            print(line, file=sys.stderr)
    run_stages(stages, root)
    return write_report(preset, seeds, root) if first else root / "report" / "index.html"


def overlaps(preset: Preset, seed: int) -> list[str]:
    """Training prompts against evaluation prompts, a line a benchmark."""
    pairs = [(preset.math_train, (*preset.math_support, preset.math_buckets)), (preset.if_train, preset.if_support)]
    return [
        f"{source.benchmark} against {bench.benchmark}: {overlap(rows, bench_rows(preset, bench))}"
        for source, benches in pairs
        for rows in [train_rows(preset, source, seed)]
        for bench in dict.fromkeys(benches)
    ]


def status_lines(preset: Preset, seeds: Sequence[int], root: Path, only: Sequence[str] = ()) -> list[str]:
    """Each stage with its state, and a sum."""
    found = stage_status(study_stages(preset, seeds, only), root)
    width = max(len(name) for name, _ in found)
    done = sum(state == "done" for _, state in found)
    return [*(f"{name:{width}}  {state}" for name, state in found), f"{done} of {len(found)} stages are done"]
