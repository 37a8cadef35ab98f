"""`vsr measure` in depth: several policies and benchmarks, presets, contrasts, trajectories, moving Other."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from vsr_jax import support
from vsr_jax.cli import main
from vsr_jax.data import micro
from vsr_jax.data.micro import BASE
from vsr_jax.data.store import read_rollouts
from vsr_jax.errors import UserError
from vsr_jax.study.compare import budgets, contrast, correlations, moved_other, spread
from vsr_jax.study.grid import DECODINGS, Cell, decoding, load_sources
from vsr_jax.study.measure import Measurement
from vsr_jax.study.measure_report import make_tables
from vsr_jax.study.measure_tables import paper_table, sensitivity_table
from vsr_jax.study.policy import load_policy, save_policy
from vsr_jax.study.trajectory import checkpoint_models
from vsr_jax.training.checkpoint import save, write_json
from vsr_jax.training.step import adamw, init_state

ROWS = micro.math_rows(micro.DEFAULT, 0, 3, split="evaluation")


def cell(policy: str, passes: list[list[float]], openings: dict[str, float], benchmark: str = "micro_math") -> Cell:
    """A cell with given pass marks; its rollouts repeat one answer a pass mark."""
    import pyarrow as pa

    matrix = np.array(passes, float)
    status = [["error" if np.isnan(p) else "correct" if p else "wrong" for p in row] for row in matrix]
    account = support.account(
        {row.id: s for row, s in zip(ROWS, status, strict=True)}, [r.id for r in ROWS], matrix.shape[1]
    )
    per_prompt = support.mean_per_prompt(matrix, missing="omit")
    curve = {
        name: support.best_at_k_curve(matrix, None, name, missing="omit")
        for name in ("unbiased", "exact", "with_replacement")
    }
    result = Measurement(
        policy, benchmark, account, support.pass_buckets(matrix, names=account.names), curve,
        {"mean": (float(np.nanmean(per_prompt)), 0, 1), "best": (float(curve["unbiased"][-1]), 0, 1)},
        openings, 5.0, 0.0,
    )  # fmt: skip
    table = pa.table(
        {
            "prompt_id": [row.id for row in ROWS for _ in matrix[0]],
            "text": ["t"] * matrix.size,
            "detail": [str(p) for p in matrix.ravel()],
            "status": [s for row in status for s in row],
        }
    )
    return Cell(policy, benchmark, Path("x"), table, ROWS, None, result)


BEFORE = cell("Base", [[0, 0, 0, 0], [1, 0, 0, 1], [1, 1, 1, 1]], {"DRI": 0.5, "DAI": 0.1, "Other": 0.4})
AFTER = cell("Math-RLVR", [[0, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], {"DRI": 0.6, "DAI": 0.3, "Other": 0.1})


def test_presets_are_those_of_the_recipe_and_single_values_can_change() -> None:
    assert DECODINGS["support"] == decoding("support")
    s = DECODINGS["support"]
    assert (s.samples, s.temperature, s.top_p, s.max_tokens, s.seed) == (32, 1.0, 0.7, 8192, 1234)
    assert (DECODINGS["joint"].samples, DECODINGS["joint"].max_tokens) == (16, 4096)
    assert decoding("joint", samples=4, top_p=None).samples == 4
    assert decoding("joint", samples=4, top_p=None).top_p == 0.95
    with pytest.raises(UserError, match="--decoding best"):
        decoding("best")


def test_contrast_is_paired_and_names_the_prompts() -> None:
    found = contrast(BEFORE, AFTER)
    assert found.budgets == (1, 4) == budgets(4)
    assert found.mean.difference == pytest.approx((0.25 - 0.5) / 3)
    np.testing.assert_allclose(found.best.difference, [(0.25 - 0.5) / 3, 0], atol=1e-12)
    assert found.transition.gained == (ROWS[0].id,)
    assert found.transition.lost == (ROWS[1].id,)
    assert found.openings["DAI"] == pytest.approx(0.2)
    torn = cell("Torn", [[np.nan] * 4, [1, 0, 0, 1], [1, 1, 1, np.nan]], {"DRI": 1.0, "DAI": 0.0, "Other": 0.0})
    partial = contrast(BEFORE, torn)
    assert partial.compared == 1  # best@4 is unknown for the third prompt, everything for the first
    assert set(partial.transition.left_out) == {ROWS[0].id, ROWS[2].id}


def test_spread_counts_answers_and_checks_its_fit() -> None:
    found = spread(BEFORE)
    assert found.distinct == pytest.approx((1 + 2 + 1) / 3)
    assert found.entropy == pytest.approx(np.log(3))
    assert found.half_life_low <= found.half_life <= found.half_life_high
    assert found.hold_out is not None
    assert found.hold_out.observed == pytest.approx(2 / 3)


def test_moving_other_shows_which_conclusions_hold() -> None:
    ways = moved_other({"DRI": 0.5, "DAI": 0.1, "Other": 0.4})
    assert ways["Other as DRI"]["DRI"] == pytest.approx(0.9)
    assert ways["Other as DAI"] == {"DRI": 0.5, "DAI": 0.5, "Other": 0.0}
    rows = {(r["policy"], r["class"]): r for r in sensitivity_table([BEFORE, AFTER], "Base").rows}
    # DRI rises as classified (.5 to .6) but falls when Other counts as DRI (.9 to .7).
    assert rows["Math-RLVR", "DRI"]["stable"] is False
    assert rows["Base", "DRI"]["stable"] is None
    assert rows["Math-RLVR", "DAI"]["changes"] == "+0.200, +0.200, -0.100"


def test_correlation_over_checkpoints_is_pearson_and_empty_without_variation() -> None:
    third = cell("3", [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]], {"DRI": 0.2, "DAI": 0.8, "Other": 0.0})
    found = correlations([BEFORE, AFTER, third], [1, 4])
    best = [c.result.curve["unbiased"][0] for c in (BEFORE, AFTER, third)]
    assert found["DAI", 1] == pytest.approx(np.corrcoef([0.1, 0.3, 0.8], best)[0, 1])
    same = [replace(c, result=replace(c.result, openings={"DAI": 0.5})) for c in (BEFORE, AFTER)]
    assert np.isnan(correlations(same, [1])["DAI", 1])


def test_paper_numbers_stand_beside_ours_where_the_benchmark_is_theirs() -> None:
    cells = [
        cell(c.policy, c.result.account.passes.tolist(), dict(c.result.openings), "ifeval") for c in (BEFORE, AFTER)
    ]
    table = paper_table([contrast(*cells)], [], 4)
    assert table is not None
    row = next(r for r in table.rows if r["model"] == "Qwen3-8B-Base" and r["metric"] == "delta_pass@1")
    assert row["paper"] == 0.065
    assert row["ours"] == pytest.approx(-0.25 / 3)
    assert row["sign_agrees"] is False
    assert paper_table([contrast(BEFORE, AFTER)], [], 4) is None  # a micro task is none of theirs


def test_tables_hold_every_budget_and_every_cell_of_the_transition() -> None:
    made = make_tables([BEFORE, AFTER], successive=False)
    assert len(made["curve"].rows) == 8
    flow = {r["before"]: (r["all_wrong"], r["mixed"], r["all_correct"]) for r in made["transitions"].rows}
    assert flow == {"all_wrong": (0, 1, 0), "mixed": (1, 0, 0), "all_correct": (0, 0, 1)}
    assert sum(r["prompts"] for r in made["pass_counts"].rows if r["policy"] == "Base") == 3


def test_sources_need_a_file_each() -> None:
    assert [len(s.rows) for s in load_sources(["micro_math", "micro_joint"], [], 2)] == [2, 2]
    with pytest.raises(UserError, match="1 files for 2 benchmarks"):
        load_sources(["gsm8k", "ifeval"], [Path("x")], None)
    with pytest.raises(UserError, match="named twice"):
        load_sources(["gsm8k", "gsm8k"], [], None)
    with pytest.raises(UserError, match="made by the package"):
        load_sources(["micro_math"], [Path("x")], None)


def test_two_policies_on_two_tasks_to_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    base = load_policy(BASE)
    moved = jax.tree.map(lambda x: x * 1.02, base.params)
    save_policy(replace(base, params=moved), tmp_path / "moved")
    out = tmp_path / "out"
    args = ["vsr", "measure", "--model", BASE, tmp_path / "moved", "--benchmark", "micro_math", "micro_joint"]
    args += ["--limit", 2, "--samples", 2, "--max-tokens", 48, "--trajectory", "--out", out]
    monkeypatch.setattr(sys, "argv", list(map(str, args)))
    main()
    printed = capsys.readouterr().out
    assert "moved - base" in printed
    assert "Pearson correlation over 2 checkpoints" in printed
    for policy in ("base", "moved"):
        for task in ("micro_math", "micro_joint"):
            assert len(read_rollouts(out / policy / task)) == 4
            settings = json.loads((out / policy / task / "settings.json").read_text())["settings"]
            assert settings["framing"] == "micro"
            assert settings["require_stop"]
    page = (out / "index.html").read_text()
    assert "Responses: micro_joint" in page
    assert all((out / f"{n}.svg").exists() for n in ("best_at_k", "coverage", "bucket_flow", "trajectory-micro_math"))


def test_a_training_run_is_measured_checkpoint_by_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    run, base = tmp_path / "run", load_policy(BASE)
    for step in (1, 2):
        moved = jax.tree.map(lambda x, step=step: x * (1 + step / 100), base.params)
        save(run / "checkpoints", step, init_state(moved, adamw(1e-3)))
    write_json(run / "settings.json", {"model": str(BASE), "revision": None})
    args = ["vsr", "measure", "--model", run, "--benchmark", "micro_math", "--limit", 2, "--samples", 2]
    args += ["--max-tokens", 16, "--trajectory", "--out", tmp_path / "out"]
    monkeypatch.setattr(sys, "argv", list(map(str, args)))
    main()
    assert "step 2 - step 1" in capsys.readouterr().out
    with pytest.raises(UserError, match="holds 0 checkpoints, a trajectory needs at least two"):
        checkpoint_models(tmp_path / "out", tmp_path / "models")


def test_confusion_report_names_rows_that_disagree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    rows = [
        {"text": "Answer: 4", "label": "DAI"},
        {"text": "Let me solve this.", "label": "DRI"},
        {"text": "Bananas are yellow.", "label": "DRI"},
        {"text": "tea and milk", "label": "CSI", "prompt_kind": "instructions", "keywords": ["tea", "milk"]},
    ]
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(sys, "argv", ["vsr", "openings", "--labels", str(file)])
    main()
    printed = capsys.readouterr().out
    assert "3 of 4 openings as labelled" in printed
    assert "| DRI | 0 | 0 | 1 | 1 | 0.500 | 1.000 |" in printed
    assert "Bananas are yellow." in printed
    file.write_text(json.dumps({"text": "x", "label": "XYZ"}))
    with pytest.raises(SystemExit):
        main()
    assert "label: is 'XYZ'" in capsys.readouterr().err
