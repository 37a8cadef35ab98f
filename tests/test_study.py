"""The micro study and `vsr measure`, small: stages done once, results that survive an interrupt, clear refusals."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vsr_jax.cli import main
from vsr_jax.data import micro
from vsr_jax.data.store import read_rollouts
from vsr_jax.errors import UserError
from vsr_jax.study.measure import MeasureSettings, sample_to_store, summarise
from vsr_jax.study.micro import BASE, MicroStudy, measurements, run_micro, stages
from vsr_jax.study.policy import load_policy
from vsr_jax.study.runs import Stage, claim_folder, run_stages

TINY = MicroStudy(math_steps=1, if_steps=1, train_rows=16, prompts=4, samples=4)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("micro")
    run_micro(TINY, root)
    return root


def test_study_writes_the_page_with_its_tables_and_figures(root: Path) -> None:
    report = root / "report"
    page = (report / "index.html").read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page)  # opens without a network
    for name in ("best_at_k", "bucket_flow", "openings", "training"):
        assert (report / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (report / f"{name}.svg").exists()
    table = (report / "support.md").read_text()
    assert all(name in table for name in ("Base", "Math-RLVR", "IF-RLVR", "mean@4", "best@4"))


def test_study_numbers_are_those_of_the_stored_rollouts(root: Path) -> None:
    found = measurements(TINY, root)
    for task in ("math", "instructions"):
        for name in ("Base", "Math-RLVR", "IF-RLVR"):
            folder = next(s for s in stages(TINY) if s.name == f"measure-{name.lower()}-{task}").folder(root)
            table = read_rollouts(folder)
            assert len(table) == 16
            passed = np.array(table["passed"].to_pylist(), float).reshape(4, 4)
            measured = found[task][name]
            assert measured.interval["mean"][0] == pytest.approx(passed.mean())
            assert measured.curve["exact"][-1] == pytest.approx((passed.sum(1) > 0).mean())
            assert sum(measured.openings.values()) == pytest.approx(1)


def test_finished_stages_are_not_run_again(root: Path, capsys: pytest.CaptureFixture) -> None:
    files = {f: f.stat().st_mtime_ns for f in (root / "stages").rglob("*") if f.is_file()}
    run_micro(TINY, root)
    assert files == {f: f.stat().st_mtime_ns for f in (root / "stages").rglob("*") if f.is_file()}
    assert capsys.readouterr().err.count("done before") == len(stages(TINY))


def test_a_setting_changes_the_stages_that_depend_on_it_and_no_other() -> None:
    from dataclasses import replace

    keys = {s.name: s.key() for s in stages(TINY)}
    other = {s.name: s.key() for s in stages(replace(TINY, if_steps=2))}
    changed = {name for name in keys if keys[name] != other[name]}
    assert changed == {"if-rlvr", "measure-if-rlvr-math", "measure-if-rlvr-instructions"}


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
from vsr_jax.study.micro import MicroStudy, run_micro
run_micro(MicroStudy(math_steps=1, if_steps=1, train_rows=4, prompts=2, samples=2), Path({str(tmp_path)!r}))
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
