"""The study and `vsr measure`, small: stages done once, results that survive an interrupt, clear refusals."""

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pytest
from tiny_study import tiny_preset

from experiments.exp7_mitigation import spearman
from vsr_jax.cli import main
from vsr_jax.data import micro
from vsr_jax.data.micro import BASE
from vsr_jax.data.rows import Row
from vsr_jax.data.store import read_rollouts
from vsr_jax.errors import UserError
from vsr_jax.report import Estimate
from vsr_jax.study.kinds import prior_texts
from vsr_jax.study.measure import MeasureSettings, sample_to_store, summarise
from vsr_jax.study.micro import micro_preset
from vsr_jax.study.policy import load_policy
from vsr_jax.study.runs import Stage, claim_folder, run_stages
from vsr_jax.study.seeds import over_seeds
from vsr_jax.study.shortcuts import few_words_of_its_own, shortcut_share
from vsr_jax.study.statements import Statement, verdict
from vsr_jax.study.study_run import run_study, status_lines, study_stages

EXPERIMENTS = range(1, 9)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole study, tiny, under one seed."""
    root = tmp_path_factory.mktemp("study")
    # Stages make the same programs again; here they share them.
    shared = {"jax_compilation_cache_dir": str(root / "compiled"), "jax_persistent_cache_min_compile_time_secs": 0}
    before = {name: getattr(jax.config, name) for name in shared}
    for name, value in shared.items():
        jax.config.update(name, value)
    run_study(tiny_preset(), [0], root)
    for name, value in before.items():
        jax.config.update(name, value)
    return root


def test_the_page_opens_without_a_network_and_has_every_experiment(root: Path) -> None:
    report = root / "report"
    page = (report / "index.html").read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page)
    for number in EXPERIMENTS:
        assert (report / f"experiment{number}_table1.md").exists()
        if number != 8:
            assert (report / f"experiment{number}_figure1.png").read_bytes().startswith(b"\x89PNG")
    claims = (report / "claims.md").read_text()
    figures = ("Table 1", "Table 2", "Table 3", *(f"Figure {n}" for n in (3, 4, 5, 6, 8, 9, 10, 11)))
    assert all(name in claims for name in figures)
    assert "miniature" in page


def test_numbers_are_those_of_the_stored_rollouts(root: Path) -> None:
    stage = next(s for s in study_stages(tiny_preset(), [0]) if s.name == "measure-math-rlvr-micro_instructions")
    passed = np.array(read_rollouts(stage.folder(root))["passed"].to_pylist(), float).reshape(6, 4)
    rows = list(csv.DictReader((root / "report" / "experiment1_table1.csv").open()))
    row = next(row for row in rows if row["policy"] == "Math-RLVR")
    assert float(row["mean"]) == pytest.approx(passed.mean(), abs=1e-3)
    assert float(row["best"]) == pytest.approx((passed.sum(1) > 0).mean(), abs=1e-3)
    assert float(row["mixed"]) == pytest.approx(np.isin(passed.sum(1), [1, 2, 3]).mean(), abs=1e-3)


def test_finished_stages_are_not_run_again(root: Path, capsys: pytest.CaptureFixture) -> None:
    files = {f: f.stat().st_mtime_ns for f in (root / "stages").rglob("*") if f.is_file()}
    run_study(tiny_preset(), [0], root)
    assert files == {f: f.stat().st_mtime_ns for f in (root / "stages").rglob("*") if f.is_file()}
    stages = study_stages(tiny_preset(), [0])
    assert capsys.readouterr().err.count("done before") == len(stages)
    assert status_lines(tiny_preset(), [0], root)[-1] == f"{len(stages)} of {len(stages)} stages are done"


def test_a_setting_changes_the_stages_that_depend_on_it_and_no_other() -> None:
    preset = tiny_preset()
    keys = {s.name: s.key() for s in study_stages(preset, [0], ["1", "2", "3"])}
    longer = replace(preset, instructions=replace(preset.instructions, steps=3))
    other = {s.name: s.key() for s in study_stages(longer, [0], ["1", "2", "3"])}
    changed = {name for name in keys if keys[name] != other[name]}
    assert changed == {
        "if-rlvr",
        "if-then-math",
        "measure-if-rlvr-micro_math",
        "measure-if-rlvr-step-1-micro_math",
        "measure-if-then-math-micro_math",
    }


def test_stages_come_after_their_inputs_and_once_under_all_seeds() -> None:
    stages = study_stages(tiny_preset(), [0, 1])
    keys = [stage.key() for stage in stages]
    assert len(set(keys)) == len(keys)
    for i, stage in enumerate(stages):
        assert {needed.key() for needed in stage.inputs} <= set(keys[:i])
    assert [s.name for s in stages if s.name == "base"] == ["base"]  # the same under every seed
    assert {"math-rlvr", "math-rlvr.1"} <= {s.name for s in stages}


def test_only_takes_numbers_and_names_and_brings_what_they_need() -> None:
    preset = tiny_preset()
    names = [s.name for s in study_stages(preset, [0], ["if-then-math"])]
    assert names == ["base", "if-rlvr", "if-then-math"]
    with pytest.raises(UserError, match="--only 9: no such experiment"):
        study_stages(preset, [0], ["9"])
    with pytest.raises(UserError, match="no stage has such a name"):
        study_stages(preset, [0], ["nothing-*"])
    with pytest.raises(UserError, match="--only 7: the quick form"):
        study_stages(micro_preset("quick"), [0], ["7"])


def test_an_unfinished_study_reports_what_is_done(tmp_path: Path) -> None:
    page = run_study(tiny_preset(), [0], tmp_path, ["base"])
    assert "Experiment 1: " in page.read_text()
    assert "not done yet" in page.read_text()


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (-0.1, -0.2, -0.01, "as in the paper"),
        (0.1, 0.01, 0.2, "opposite"),
        (-0.1, -0.2, 0.0, "inconclusive"),
        (-0.1, float("nan"), float("nan"), "no interval from one seed"),
        (float("nan"), float("nan"), float("nan"), "not measured"),
    ],
)
def test_verdicts_follow_from_the_numbers(value: float, low: float, high: float, expected: str) -> None:
    assert verdict(Statement("Table 1", "it falls", "-.1", -1, Estimate(value, low, high))) == expected


def test_intervals_over_seeds_are_those_of_a_plain_crosswise_bootstrap() -> None:
    values = np.random.default_rng(0).normal(size=(3, 20))
    values[1, 4] = np.nan
    got = over_seeds(list(values), draws=20_000)
    draw = np.random.default_rng(1)
    means = []
    for _ in range(20_000):
        s, p = draw.integers(3, size=3), draw.integers(20, size=20)
        means.append(np.nanmean(values[np.ix_(s, p)]))
    assert got.value == pytest.approx(np.nanmean(values))
    np.testing.assert_allclose([got.low, got.high], np.quantile(means, [0.025, 0.975]), atol=0.02)


def test_shortcuts_are_passing_responses_without_words_of_their_own() -> None:
    row = Row("a", "p", "instructions", None, ("keywords:existence",), ({"keywords": ["red house"]},))
    assert few_words_of_its_own(row, "Red house !")
    assert few_words_of_its_own(row, "a red house here now")
    assert not few_words_of_its_own(row, "the red house stands on a hill")
    table = pa.table(
        {
            "prompt_id": ["a"] * 4,
            "text": ["red house", "red house", "the red house stands on a hill", "red"],
            "passed": pa.array([True, False, True, None]),
        }
    )
    assert shortcut_share(table, [row]).tolist() == [pytest.approx(1 / 3)]


def test_rank_correlation_with_ties() -> None:
    x, y = np.array([1.0, 2.0, 2.0, 5.0, 9.0]), np.array([3.0, 1.0, 1.0, 0.5, 0.0])
    assert spearman(x, y) == pytest.approx(-1.0)
    assert spearman(x, np.array([1.0, 3.0, 2.0, 4.0, 5.0])) == pytest.approx(0.9747, abs=1e-4)


def test_prior_texts_are_correct_ended_and_of_one_opening() -> None:
    table = pa.table(
        {
            "prompt_id": ["a", "a", "a", "b", "c"],
            "prompt_tokens": [[1]] * 5,
            "tokens": [[1, 2, 3], [1, 2], [9], [4, 5], [6]],
            "text": ["long", "short", "wrong", "direct", "cut"],
            "passed": [True, True, False, True, True],
            "opening": ["DRI", "DRI", "DRI", "DAI", "DRI"],
            "finish_reason": ["stop", "stop", "stop", "stop", "length"],
        }
    )
    assert prior_texts(table, "DRI", 50, 0) == [([1], [1, 2], "short")]
    assert {text for *_, text in prior_texts(table, "", 50, 0)} <= {"long", "short", "direct"}
    with pytest.raises(UserError, match="no correct response opens with CSI"):
        prior_texts(table, "CSI", 50, 0)


def test_an_interrupted_stage_is_taken_up_where_it_stopped(tmp_path: Path) -> None:
    calls: list[str] = []

    def first(folder, inputs, report):
        report(1, 1, "")
        calls.append("first")

    def second(folder, inputs, report):
        calls.append("second")
        if not (folder / "half").exists():
            (folder / "half").touch()
            raise KeyboardInterrupt
        assert inputs[0].name.startswith("first")

    a = Stage("first", {}, (), first)
    b = Stage("second", {"x": 1}, (a,), second)
    with pytest.raises(KeyboardInterrupt):
        run_stages([a, b], tmp_path)
    run_stages([a, b], tmp_path)
    assert calls == ["first", "second", "second"]
    assert a.done(tmp_path)
    assert b.done(tmp_path)


def test_an_interrupted_measurement_goes_on_by_prompt_and_ends_the_same(tmp_path: Path) -> None:
    policy = load_policy(BASE, name="Base")
    rows = micro.math_rows(micro.DEFAULT, 0, 5, split="evaluation")
    settings = MeasureSettings(4, 48, framing="micro", require_stop=True, extract="boxed", rows=8)
    whole = sample_to_store(policy, rows, settings, tmp_path / "whole")

    def stop(done: int, total: int) -> None:
        assert total == 5
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_to_store(policy, rows, settings, tmp_path / "torn", progress=stop)
    seen: list[int] = []
    again = sample_to_store(policy, rows, settings, tmp_path / "torn", progress=lambda done, total: seen.append(done))
    assert seen == [2, 3, 4, 5]
    assert again.equals(whole)
    result = summarise(whole, rows, 4, policy="Base", benchmark="micro")
    assert result.account.passes.shape == (5, 4)


def test_a_folder_with_other_settings_is_refused_by_the_field_that_differs(tmp_path: Path) -> None:
    claim_folder(tmp_path, {"samples": 4, "model": "a"})
    claim_folder(tmp_path, {"samples": 4, "model": "a"})
    with pytest.raises(UserError, match="samples = 4, this one has 8"):
        claim_folder(tmp_path, {"samples": 8, "model": "a"})


def vsr(*args: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["vsr", *map(str, args)])
    main()


def test_measure_command_prints_all_three_meanings_and_writes_the_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"question": "[1] 4 (1) + 3 .", "answer": "so 7 #### 7"}) + "\n")
    args = ["measure", "--model", BASE, "--benchmark", "gsm8k", "--data", data, "--samples", 4, "--max-tokens", 8]
    with pytest.warns(UserWarning, match="rows"):
        vsr(*args, "--framing", "micro", "--out", tmp_path / "out", monkeypatch=monkeypatch)
    text = capsys.readouterr().out
    assert all(word in text for word in ("mean@4", "best@4, unbiased", "best@4, exact", "best@4, with replacement"))
    assert all(word in text for word in ("all_wrong", "DRI", "rollouts.parquet"))
    assert len(read_rollouts(tmp_path / "out")) == 4
    assert json.loads((tmp_path / "out" / "settings.json").read_text())["settings"]["samples"] == 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--model": "nowhere/at/all/x"}, "nowhere/at/all/x"),
        ({"--data": "missing.jsonl"}, "missing.jsonl"),
        ({"--data": "EMPTY"}, "EMPTY.jsonl: has no rows"),
        ({"--data": "BROKEN"}, "BROKEN.jsonl"),
        ({"--benchmark": "gsm9k"}, "gsm9k"),
        ({"--max-tokens": 4096}, "context"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, change: dict, message: str
) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text(json.dumps({"question": "[1] 4 (1) + 3 .", "answer": "#### 7"}) + "\n")
    (tmp_path / "EMPTY.jsonl").write_text("")
    (tmp_path / "BROKEN.jsonl").write_text('{"question": 3}\n')
    args = {"--model": BASE, "--benchmark": "gsm8k", "--data": good, "--framing": "micro", "--out": tmp_path / "out"}
    for key, value in change.items():
        args[key] = tmp_path / f"{value}.jsonl" if value in ("EMPTY", "BROKEN") else value
    with pytest.raises(SystemExit) as caught:
        vsr("measure", *(x for pair in args.items() for x in pair), monkeypatch=monkeypatch)
    assert caught.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("vsr: error: ")
    assert message in error
    assert not (tmp_path / "out" / "rollouts.parquet").exists()


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_help_and_import_leave_jax_alone() -> None:
    code = "import sys; sys.argv = ['vsr', '--help']\nimport vsr_jax\nfrom vsr_jax.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\nprint([m for m in ('jax', 'transformers') if m in sys.modules])"
    assert python(code).endswith("[]")


def test_no_module_and_no_part_of_the_micro_path_imports_torch(tmp_path: Path) -> None:
    code = f"""
import importlib, pkgutil, sys
sys.modules["torch"] = None  # an import of torch would raise
import vsr_jax, experiments
for package in (vsr_jax, experiments):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from tiny_study import tiny_preset
from vsr_jax.study.study_run import run_study
run_study(tiny_preset(), [0], Path({str(tmp_path)!r}), ["measure-math-rlvr-micro_math"])
print(sys.modules["torch"])
"""
    assert python(code).endswith("None")


def test_selfcheck_prints_both_tables(
    shared_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    vsr("verifiers", "selfcheck", "--oracle", shared_dir / "data" / "oracle", monkeypatch=monkeypatch)
    text = capsys.readouterr().out
    assert "| all | 701 |" in text
    assert "| ifeval | strict |" in text


def test_selfcheck_without_records_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as caught:
        vsr("verifiers", "selfcheck", "--oracle", tmp_path, monkeypatch=monkeypatch)
    assert caught.value.code == 2
    assert "math_equivalence_dev.jsonl" in capsys.readouterr().err
