"""The page of a study: the paper's claims with our numbers, then a chapter an experiment, then responses to read."""

from collections.abc import Sequence
from pathlib import Path

from vsr_jax import report
from vsr_jax.report import Block, Callout, Prose, Section, Table
from vsr_jax.report.blocks import Picture
from vsr_jax.report.files import write_atomic
from vsr_jax.study.kinds import Measured, bench_rows
from vsr_jax.study.preset import Preset
from vsr_jax.study.runs import provenance
from vsr_jax.study.statements import Chapter, statement_table
from vsr_jax.study.study_run import chosen_experiments, ordered, overlaps


def write_report(preset: Preset, seeds: Sequence[int], root: Path) -> Path:
    """Writes `root/report/index.html` with its tables (CSV, Markdown) and pictures.

    Experiments whose stages are not all done are named and left out.
    """
    out = root / "report"
    chapters, missing = [], []
    for number, experiment in chosen_experiments(preset).items():
        stages = ordered(stage for seed in seeds for stage in experiment.stages(preset, seed))
        left = sum(not stage.done(root) for stage in stages)
        if left:
            missing.append(f"Experiment {number}: {left} of {len(stages)} stages are not done yet.")
        else:
            chapter = experiment.chapter(preset, seeds, root)
            chapters.append(chapter)
            _write_blocks(chapter, out, f"experiment{number}")
    claims = statement_table([s for chapter in chapters for s in chapter.statements], len(seeds))
    report.write_table(claims, out / "claims")
    left_out = [f"Experiment {number}: {why}." for number, why in preset.skip.items()] + missing
    sections = [
        Section("What this is", [Callout(preset.about), Prose(_setting(preset, seeds)), *_listed(left_out)]),
        Section("The paper's claims", [claims]),
        *(Section(chapter.title, chapter.blocks) for chapter in chapters),
        *_browsers(preset, seeds[0], root),
    ]
    return report.write_page(out, "What a verifier does to support", sections, subtitle=f"vsr study {preset.name}")


def _listed(lines: Sequence[str]) -> list[Block]:
    return [Prose("\n\n".join(lines))] if lines else []


def _setting(preset: Preset, seeds: Sequence[int]) -> str:
    made = provenance()
    runs = (
        f"Math-RLVR ran {preset.math.steps} and IF-RLVR {preset.instructions.steps} steps of {preset.math.prompts} "
        f"prompts x {preset.math.samples} samples at learning rate {preset.math.learning_rate:g}. Training seeds: "
        f"{', '.join(map(str, seeds))}; every seed is measured on the same prompts."
    )
    parts = [
        runs,
        "Training against evaluation prompts. " + "; ".join(overlaps(preset, seeds[0])) + ".",
        *preset.open_choices,
        f"Made with vsr-jax {made['version_vsr-jax']} ({made['git']}), jax {made['version_jax']}.",
    ]
    return "\n\n".join(parts)


def _write_blocks(chapter: Chapter, out: Path, name: str) -> None:
    tables = [block for block in chapter.blocks if isinstance(block, Table)]
    pictures = [block for block in chapter.blocks if isinstance(block, Picture)]
    for number, table in enumerate(tables, 1):
        report.write_table(table, out / f"{name}_table{number}")
    for number, picture in enumerate(pictures, 1):
        write_atomic(out / f"{name}_figure{number}.png", picture.png)


_BROWSED = ["prompt_id", "sample_id", "text", "passed", "opening", "status", "finish_reason", "parts"]


def _browsers(preset: Preset, seed: int, root: Path) -> list[Section]:
    """The main policies' responses, a section a benchmark, as far as they are measured."""
    from experiments.policies import base, if_rlvr, if_then_math, math_rlvr
    from vsr_jax.study.kinds import measure

    policies = [make(preset, seed) for make in (base, math_rlvr, if_rlvr, if_then_math)]
    sections = []
    for bench in dict.fromkeys((*preset.math_support, preset.math_buckets, *preset.if_support)):
        measured = [measure(preset, policy, bench, seed) for policy in policies]
        held = [m for m in measured if m.stage.done(root)]
        if held:
            sections.append(_browser(preset, held, root))
    return sections


def _browser(preset: Preset, measured: Sequence[Measured], root: Path) -> Section:
    bench = measured[0].bench
    rows = {row.id: row for row in bench_rows(preset, bench)}
    responses = []
    for one in measured:
        for item in one.table(root).select(_BROWSED).to_pylist():
            row = rows[item["prompt_id"]]
            names = row.instruction_ids or ("answer",)
            parts = item.pop("parts")
            constraints = list(zip(names, parts, strict=True)) if len(names) == len(parts) else []
            responses.append({"policy": one.policy.name, "prompt": row.prompt, "constraints": constraints, **item})
    return report.browser_section(responses, heading=f"Responses: {bench.title}", asked=bench.decoding.samples)
