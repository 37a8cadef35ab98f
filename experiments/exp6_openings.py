"""6. What a forced opening does to each policy, and the same token further on (Figure 8)."""

from collections.abc import Sequence
from pathlib import Path

from experiments.policies import base, if_rlvr
from vsr_jax import report
from vsr_jax.report import Prose
from vsr_jax.report.mechanism_figures import intervention_dots, sweep_curve
from vsr_jax.study import blocks
from vsr_jax.study.kinds_mechanism import Forced, forced
from vsr_jax.study.preset import Bench, Preset
from vsr_jax.study.runs import Stage
from vsr_jax.study.seeds import Found, What, change, estimate, found_forced
from vsr_jax.study.statements import Chapter, Statement

OTHER = "other's first token"


def plan(preset: Preset, seed: int, bench: Bench) -> tuple[Forced, Forced]:
    """IF-RLVR with openings of Base, and Base with openings of IF-RLVR and the sweep."""
    start, trained = base(preset), if_rlvr(preset, seed)
    return (
        forced(preset, trained, start, bench, seed),
        forced(preset, start, trained, bench, seed, sweep=preset.sweep),
    )


def stages(preset: Preset, seed: int) -> list[Stage]:
    """What has to be decoded."""
    return [side.stage for bench in preset.intervene for side in plan(preset, seed, bench)]


def chapter(preset: Preset, seeds: Sequence[int], root: Path) -> Chapter:
    """Conditions of both directions, and the sweep."""
    statements, table, panels, pictures = [], [], {}, []
    for bench in preset.intervene:
        n = bench.decoding.samples
        plans = [plan(preset, seed, bench) for seed in seeds]
        both: list[dict[str, list[Found]]] = []
        for side in (0, 1):
            names = plans[0][side].conditions(root)
            both.append({name: [found_forced(preset, p[side], root, name) for p in plans] for name in names})
        trained, start = both
        positions = plans[0][1].conditions(root)
        moved = {name: position for name, position in positions.items() if position > 1}
        on_if, on_base = f"IF-RLVR, {bench.title}", f"Base, {bench.title}"
        says: list[tuple[str, str, int, tuple[list[Found], list[Found]], What, str]] = [
            (
                f"Base's first token raises best@{n} of IF-RLVR",
                "up to +.578, +.586",
                +1,
                (trained["free"], trained[OTHER]),
                n,
                on_if,
            ),
            (
                f"a DRI prefix raises best@{n} of IF-RLVR",
                "positive",
                +1,
                (trained["free"], trained["DRI prefix"]),
                n,
                on_if,
            ),
            (
                "a DRI prefix does more for the mean than a neutral prefix as long",
                "",
                +1,
                (trained["neutral prefix, as long"], trained["DRI prefix"]),
                "mean",
                on_if,
            ),
            (
                f"IF-RLVR's first token lowers best@{n} of Base",
                "-.156, -.211; not on 7B",
                -1,
                (start["free"], start[OTHER]),
                n,
                on_base,
            ),
            ("and its DRI share", "", -1, (start["free"], start[OTHER]), "DRI", on_base),
        ]
        statements += [
            Statement("Figure 8", text, paper, sign, change(*pair, what), about)
            for text, paper, sign, pair, what, about in says
        ]
        later = [name for name, position in moved.items() if position >= 8]
        if later:
            text = f"the same token at position {moved[later[0]]} leaves more DRI than at position 1"
            gap = change(start[OTHER], start[later[0]], "DRI")
            statements.append(Statement("Figure 8", text, "only the opening position matters", +1, gap, on_base))
        for policy, side in (("IF-RLVR", trained), ("Base", start)):
            named = {name: cells for name, cells in side.items() if name not in moved}
            table += [(f"{bench.title}, {policy}", name, cells) for name, cells in named.items()]
            measures = {"mean": "mean", f"best@{n}": n}
            panels[f"{policy}, {bench.title}"] = {
                name: {label: estimate(cells, what) for label, what in measures.items()}
                for name, cells in named.items()
            }
        if moved:
            swept = {1: start[OTHER], **{position: start[name] for name, position in moved.items()}}
            series = {"mean": "mean", "DRI share": "DRI"}
            figure = sweep_curve(
                list(swept),
                {label: [estimate(cells, what).value for cells in swept.values()] for label, what in series.items()},
                {label: estimate(start["free"], what).value for label, what in series.items()},
            )
            pictures.append(
                report.picture(
                    figure,
                    "The forced token at each position",
                    f"Base on {bench.title}: IF-RLVR's first token at each position; dotted: Base left alone.",
                )
            )
    figure = intervention_dots(panels, list(next(iter(next(iter(panels.values())).values()))))
    return Chapter(
        "6. What a forced opening does",
        statements,
        [
            Prose(
                "No update: the first tokens are forced, the policy goes on from there. Forced text is part of the "
                "response when it is checked. Recovery under a DRI prefix shows that the chain is still there and only "
                "the way in was lost; no recovery shows that the chain itself is gone."
            ),
            report.picture(figure, "What each condition reaches", "95 % intervals."),
            *pictures,
            blocks.support_table(table),
        ],
    )
