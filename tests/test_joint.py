"""C, F, J and the gap: its two parts, kinds of constraints, and the command on the micro world."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from vsr_jax.cli import main
from vsr_jax.data.micro import BASE
from vsr_jax.data.rows import Row
from vsr_jax.study.joint import gaps_by_kind, joint_support


def rows_of(*ids: tuple[str, ...]) -> list[Row]:
    return [Row(f"p{i}", "?", "joint", "1", kinds, ({},) * len(kinds)) for i, kinds in enumerate(ids)]


def table_of(parts: list[list[list[bool] | None]]) -> pa.Table:
    flat = [(f"p{i}", one) for i, prompt in enumerate(parts) for one in prompt]
    return pa.table(
        {
            "prompt_id": [name for name, _ in flat],
            "parts": [one or [] for _, one in flat],
            "passed": [None if one is None else all(one) for _, one in flat],
        }
    )


def test_counts_are_those_of_the_responses_and_the_gap_splits_in_two() -> None:
    # First prompt: answer and constraint exclude each other. Second: both always. Third: neither, one without verdict.
    parts = [
        [[True, False], [False, True], [True, False], [False, True]],
        [[True, True]] * 4,
        [[False, False], [False, False], [False, False], None],
    ]
    found = joint_support(table_of(parts), rows_of(("a",), ("a",), ("a",)))
    assert (found.prompts, found.responses, found.without) == (3, 11, 1)
    c = np.array([0.5, 1, 0])
    assert found.correct.value == pytest.approx(c.mean())
    assert found.followed.value == pytest.approx(c.mean())
    assert found.joint.value == pytest.approx(1 / 3)
    assert found.any_joint.value == pytest.approx(1 / 3)
    assert found.gap.value == pytest.approx(1 / 3 - 0.25)
    assert found.within.value == pytest.approx(-0.25 / 3)  # only the first prompt: J = 0, C F = 1/4
    assert found.between.value == pytest.approx(np.cov(c, ddof=0))
    assert found.within.value + found.between.value == pytest.approx(found.gap.value)
    assert found.joint.low <= found.joint.value <= found.joint.high


def test_all_instructions_must_hold_and_a_cut_response_holds_none() -> None:
    parts = [[[True, True, False], [True, True, True], [False]]]
    found = joint_support(table_of(parts), rows_of(("a", "b")))
    assert found.correct.value == pytest.approx(2 / 3)
    assert found.followed.value == pytest.approx(1 / 3)
    assert found.joint.value == pytest.approx(1 / 3)


def test_kinds_are_judged_alone_over_the_prompts_that_carry_them() -> None:
    costs = [[[True, False, True], [False, True, True], [True, False, True], [False, True, True]]]
    free = [[[True, True], [False, False], [True, True], [False]]]
    found = {k.kind: k for k in gaps_by_kind(table_of(costs + free), rows_of(("cost", "easy"), ("help",)))}
    assert list(found) == ["cost", "easy", "help"]  # most negative first
    assert found["cost"].gap.value == pytest.approx(-0.25)
    assert (found["cost"].given_followed, found["cost"].given_broken) == (0, 1)
    assert found["easy"].gap.value == pytest.approx(0)
    assert np.isnan(found["easy"].given_broken)
    assert found["help"].prompts == 1
    assert found["help"].correct == pytest.approx(2 / 3)  # the cut response says nothing about its constraint
    assert found["help"].gap.value == pytest.approx(2 / 3 - 4 / 9)


def test_joint_command_on_the_micro_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    args = ["vsr", "joint", "--model", BASE, "--benchmark", "micro_joint", "--limit", 4, "--samples", 4]
    monkeypatch.setattr(sys, "argv", [str(a) for a in [*args, "--max-tokens", 48, "--out", tmp_path / "out"]])
    main()
    printed = capsys.readouterr().out
    assert "J - C F" in printed
    assert "Which constraints cost the answer" in (tmp_path / "out" / "index.html").read_text()
    monkeypatch.setattr(sys, "argv", ["vsr", "joint", "--model", str(BASE), "--benchmark", "micro_math", "--out", "x"])
    with pytest.raises(SystemExit):
        main()
    assert "micro_math" in capsys.readouterr().err
