"""`vsr verifiers selfcheck`: our verdicts beside recorded ones, as tables."""

from pathlib import Path

from vsr_jax.report import Column, Table, to_markdown
from vsr_jax.verifiers.selfcheck import agreement_tables
from vsr_jax.verifiers.selfcheck_instructions import agreement


def selfcheck(oracle: Path) -> str:
    """The agreement tables of math and of every instruction suite; raises UserError where the records are absent."""
    math = agreement_tables(oracle)
    graders = [name for name in math[0] if name not in ("group", "rows")]
    by_grader = [Column("group", "Gold answer"), Column("rows", "Pairs", digits=0)]
    by_grader += [Column(name, name) for name in graders]
    by_suite = [
        Column("suite", "Suite"),
        Column("level", "Level"),
        Column("rows", "Verdicts", digits=0),
        Column("agree", "Agree", digits=0),
        Column("share", "Share", digits=4),
        Column("left_out", "Left out", digits=0),
    ]
    left_out = math[-1].pop("left_out")
    return "\n".join(
        [
            to_markdown(
                Table(by_grader, math, f"Math: share that agrees with the intended verdict; {left_out} left out.")
            ),
            to_markdown(Table(by_suite, agreement(oracle), "Instructions: agreement with the reference checkers.")),
        ]
    )
