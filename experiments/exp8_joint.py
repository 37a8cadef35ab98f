"""8. Correct answers and followed instructions in the same response (Table 3)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.policies import base, joint_if, joint_math
from vsr_jax.report import Column, Prose, Table
from vsr_jax.study.joint import joint_per_prompt
from vsr_jax.study.kinds import Measured, bench_rows, measure
from vsr_jax.study.preset import Bench, Preset
from vsr_jax.study.runs import Stage
from vsr_jax.study.seeds import over_seeds
from vsr_jax.study.statements import Chapter, Statement

NAMES = ("Base", "Math-RLVR", "IF-RLVR")


def plan(preset: Preset, seed: int, bench: Bench) -> list[Measured]:
    """The three policies on one joint benchmark."""
    policies = (base(preset), joint_math(preset, seed), joint_if(preset, seed))
    return [measure(preset, policy, bench, seed) for policy in policies]


def stages(preset: Preset, seed: int) -> list[Stage]:
    """What has to be measured."""
    return [m.stage for bench in preset.joint for m in plan(preset, seed, bench)]


def chapter(preset: Preset, seeds: Sequence[int], root: Path) -> Chapter:
    """C, F, J and what each training moves."""
    statements, rows = [], []
    for bench in preset.joint:
        asked = bench_rows(preset, bench)
        # float64[seed][policy][prompts, (C, F, J, C F)]
        shares = [[joint_per_prompt(m.table(root), asked) for m in plan(preset, seed, bench)] for seed in seeds]
        level = {
            (name, key): [one[i][:, j] for one in shares] for i, name in enumerate(NAMES) for j, key in enumerate("CFJ")
        }
        rise = {
            (name, key): [y - x for x, y in zip(level["Base", key], level[name, key], strict=True)]
            for name in NAMES[1:]
            for key in "CFJ"
        }
        for name in NAMES:
            c, f, j = (float(np.nanmean(level[name, key])) for key in "CFJ")
            shown = {key: over_seeds(level[name, key]) for key in "CFJ"}
            rows.append({"about": bench.title, "policy": name, **shown, "gap": j - c * f})
        says = [
            ("Math-RLVR raises C", "+.113, +.056", +1, rise["Math-RLVR", "C"]),
            ("and J", "+.024, +.017", +1, rise["Math-RLVR", "J"]),
            ("J by less than C", "", -1, _behind(rise, "Math-RLVR", "C")),
            ("IF-RLVR raises F", "+.181, +.153", +1, rise["IF-RLVR", "F"]),
            ("and J", "+.055, +.062", +1, rise["IF-RLVR", "J"]),
            ("J by less than F", "", -1, _behind(rise, "IF-RLVR", "F")),
        ]
        statements += [
            Statement("Table 3", text, paper, sign, over_seeds(values), bench.title)
            for text, paper, sign, values in says
        ]
    columns = [
        Column("about", "Prompts"),
        Column("policy", "Policy"),
        Column("C", "C, answer"),
        Column("F", "F, instructions"),
        Column("J", "J, both"),
        Column("gap", "J - C F", signed=True),
    ]
    return Chapter(
        "8. Answer and instructions together",
        statements,
        [
            Prose(
                "C: the answer is correct. F: every instruction is followed, strictly. J: both in the same response."
            ),
            Table(columns, rows, "Means over prompts and seeds, 95 % intervals."),
        ],
    )


def _behind(rise: Mapping[tuple[str, str], Sequence[np.ndarray]], name: str, key: str) -> list[np.ndarray]:
    """How far the rise of J stays behind that of C or F, by seed and prompt."""
    return [j - other for j, other in zip(rise[name, "J"], rise[name, key], strict=True)]
