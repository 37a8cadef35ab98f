"""Presets of real models: data found and counted, estimates as by hand, and the whole pipeline in miniature."""

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from tiny_qwen import random_qwen, tiny_qwen_preset

from vsr_jax.cli import main
from vsr_jax.errors import UserError
from vsr_jax.study.cost import DEVICES, Assumptions, device_seconds, fewest_devices, model_sizes
from vsr_jax.study.dry_run import dry_run
from vsr_jax.study.micro import micro_preset
from vsr_jax.study.presets_real import NAMES, benchmarks_of, data_files, real_preset
from vsr_jax.study.study_run import run_study, study_stages
from vsr_jax.study.work import Work

GIVEN = Assumptions(prompt=100, response=200, bandwidth=0.5, compute=0.25)


def test_an_estimate_is_what_the_closed_form_gives_by_hand() -> None:
    config = model_sizes(real_preset("qwen3-8b"))
    # Qwen3-8B has 36 layers of 4096 x 4096 queries and outputs, 4096 x 1024 keys and values, three 4096 x 12288, and
    # norms (2 x 4096 and 2 x 128 a layer, 4096 at the end); the head has 151936 x 4096. The embedding is looked up.
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128
    matrices = 36 * layer + 4096 + 151936 * 4096
    heads = 36 * 32 * 128
    work = Work(prompts=3, responses=12, max_tokens=50, scored=5, trained=7)
    rate, flops = 2765e9 * 0.5, 459e12 * 0.25
    cache = (100 + 25) * 36 * 8 * 128 * 2 * 2
    token = (2 * matrices / 12 + cache) / rate  # 12 responses at once: memory is the limit
    assert token > (2 * matrices + 4 * heads * 125) / flops
    prefill = 3 * (2 * matrices * 100 + 2 * heads * 100**2) / flops
    scored = 5 * (2 * matrices * 150 + 2 * heads * 150**2) / flops
    trained = 7 * (8 * matrices * 150 + 9 * heads * 150**2) / flops
    got = device_seconds(config, work, 256, DEVICES["v5p"], GIVEN)
    assert got == pytest.approx(12 * 50 * token + prefill + scored + trained, rel=1e-12)
    # With very many at once, computing is the limit where the cache is small.
    one = replace(work, prompts=0, scored=0, trained=0, responses=10**6, max_tokens=1)
    slow = replace(DEVICES["v5p"], flops=1e12)
    hand = 10**6 * (2 * matrices + 4 * heads * 100.5) / (1e12 * 0.25)
    assert device_seconds(config, one, 10**6, slow, GIVEN) == pytest.approx(hand, rel=1e-12)


def test_training_needs_as_many_devices_as_hold_its_state() -> None:
    config = model_sizes(real_preset("qwen3-8b"))
    training = Work(trained=1)  # 8.19e9 parameters x 18 bytes = 147 GB
    assert fewest_devices(config, training, 1, DEVICES["v5p"], GIVEN) == 2  # 92 GB usable each
    assert fewest_devices(config, training, 1, DEVICES["h100"], GIVEN) == 4  # 72 GB
    assert fewest_devices(config, training, 1, DEVICES["v5e"], GIVEN) == 16  # 15.5 GB
    assert fewest_devices(config, Work(models=1), 1, DEVICES["h100"], GIVEN) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_complete_and_its_settings_agree(name: str) -> None:
    preset = real_preset(name)
    runs = [preset.math, preset.instructions, preset.then_math, preset.then_if, preset.after_prior]
    for settings in [*runs, *filter(None, [preset.joint_math, preset.joint_if])]:
        settings.check()
    assert max(preset.trajectory + preset.teacher_steps) <= preset.instructions.steps
    assert max(preset.prior_snapshots) < preset.after_prior.steps
    assert preset.open_choices
    names = {stage.name for stage in study_stages(preset, [0])}
    assert {"base", "math-rlvr", "if-rlvr", "if-then-math", "opd-from-if-rlvr"} <= names
    longest = [run.max_tokens for run in runs] + [b.decoding.max_tokens for b in (*preset.math_support, *preset.joint)]
    assert max(longest) + 2048 <= model_sizes(preset).max_position


def test_work_is_a_stage_s_counts() -> None:
    stages = study_stages(real_preset("qwen3-8b"), [0])
    work = {stage.name: stage.work for stage in stages}
    # For support, and for localisation under another framing.
    asked = [stage.work for stage in stages if stage.name == "measure-base-ifeval"]
    assert asked == [Work(541, 541 * 32, 8192, models=1), Work(100, 100 * 8, 8192, models=1)]
    assert work["math-rlvr"] == Work(220 * 512, 220 * 512 * 16, 8192, trained=220 * 512 * 16)
    assert work["math-then-if-beta-0-12"].scored == 100 * 512 * 16  # by the reference
    assert work["localize-aime24"] == Work(max_tokens=8192, scored=30 * 32 * 3, models=3)
    assert work["soft-dri-prior"].trained == 62 * 8


def test_an_estimate_changes_no_stage() -> None:
    stage = study_stages(micro_preset("quick"), [0], ["base"])[0]
    assert replace(stage, work=Work(1, 2, 3)).key() == stage.key()


def test_dry_run_lists_stages_and_what_is_done(tmp_path: Path) -> None:
    preset = real_preset("small")
    stages = study_stages(preset, [0])
    done = next(stage for stage in stages if stage.name == "math-rlvr").folder(tmp_path)
    done.mkdir(parents=True)
    (done / "done.json").write_text("{}")
    text = dry_run(preset, [0], tmp_path, chip="h100")
    line = next(line for line in text.splitlines() if line.startswith("| math-rlvr |"))
    assert "| base | 1 x h100 |" in line
    assert line.endswith("| done |")
    assert f"{len(stages)} stages, 1 done; " in text
    assert "Estimated, not measured" in text
    assert "hub: HuggingFaceH4/MATH-500 | not read | 128" in text
    with pytest.raises(UserError, match="--chip tpu9"):
        dry_run(preset, [0], tmp_path, chip="tpu9")
    with pytest.raises(UserError, match="unknown model preset 'some/model'"):
        dry_run(real_preset("small", model="some/model"), [0], tmp_path)


def test_a_data_folder_is_read_by_names_and_its_rows_are_counted(tmp_path: Path) -> None:
    (tmp_path / "gsm8k").mkdir()
    line = json.dumps({"question": "one and one?", "answer": "#### 2"}) + "\n"
    (tmp_path / "gsm8k" / "test.jsonl").write_text(line)
    row = {"key": 1, "prompt": "p", "instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": ["a"]}]}
    (tmp_path / "ifeval.jsonl").write_text(json.dumps(row) + "\n")
    assert set(data_files(tmp_path)) == {"gsm8k", "ifeval"}
    text = dry_run(real_preset("small", data=tmp_path), [0], tmp_path / "out")
    assert "| ifeval | ifeval.jsonl | 1 | 541 | 540 lack |" in text
    (tmp_path / "gsm8k.jsonl").write_text(line)
    with pytest.raises(UserError, match="are both gsm8k; keep one"):
        data_files(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        data_files(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no known file"):
        data_files(tmp_path / "empty")


def test_public_files_have_as_many_rows_as_known(shared_dir: Path) -> None:
    text = dry_run(real_preset("qwen3-8b", data=shared_dir / "data"), [0], Path("nowhere"))
    for name in set(benchmarks_of(real_preset("qwen3-8b"))) - {"iftrain"}:
        assert next(x for x in text.splitlines() if x.startswith(f"| {name} |")).endswith("| complete |")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["micro", "--data", "."], "--data: study micro has no such option"),
        (["small", "--quick"], "--quick: study small has no such option"),
        (["small", "--dry-run", "--mean-tokens", "0"], "--mean-tokens 0"),
    ],
)
def test_options_of_another_study_are_refused(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["vsr", "study", *options])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_pipeline_of_a_real_model_runs_through_all_experiments(shared_dir: Path, tmp_path: Path) -> None:
    data = shared_dir / "data"
    preset = tiny_qwen_preset(random_qwen(tmp_path / "qwen", data / "qwen_tokenizer"), data)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fewer rows of IFTrain than the whole has
            page = run_study(preset, [0], tmp_path / "run")
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
    text = page.read_text()
    assert "not done yet" not in text
    for number in range(1, 9):
        assert (page.parent / f"experiment{number}_table1.md").exists()
