"""The loops: an interrupted run ends like one that never stopped; bad gradients stop a run and lose nothing."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vsr_jax.cli import main
from vsr_jax.data import micro
from vsr_jax.data.micro import BASE
from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.judging import Judged, judge
from vsr_jax.model.checkpoint_io import load_model
from vsr_jax.objectives.types import Objective
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import SamplingParams
from vsr_jax.study.policy import load_policy
from vsr_jax.study.pretrain import PretrainSettings, pretrain
from vsr_jax.training.checkpoint import read_metrics, restore_latest, rewind_metrics, save, untimed
from vsr_jax.training.on_policy import (
    opd_objective,
    train_opd,
    train_rlvr,
)
from vsr_jax.training.rounds import prompt_indices, rewards_of
from vsr_jax.training.settings import OpdSettings, RlvrSettings, SftSettings
from vsr_jax.training.sft import train_sft
from vsr_jax.training.step import Model
from vsr_jax.verifiers import Verdict

SETTINGS = RlvrSettings(
    steps=3,
    prompts=2,
    samples=4,
    max_tokens=48,
    learning_rate=1e-3,
    kl_coef=0.05,
    micro_prompts=1,
    checkpoint_every=1,
    require_stop=True,
    extract="boxed",
    seed=3,
)


@pytest.fixture(scope="module")
def policy():
    return load_policy(BASE, name="Base")


def run(policy, out: Path, settings=SETTINGS, **kwargs):
    rows = micro.math_rows(micro.DEFAULT, 0, 5)
    encode = lambda row: policy.encode(row, "micro")  # noqa: E731
    return train_rlvr(
        policy.config, policy.params, rows, encode, policy.tokenizer, policy.stop_ids, settings, out, **kwargs
    )


class Interrupted(Exception):
    pass


def test_an_interrupted_run_ends_bit_for_bit_like_one_that_never_stopped(policy, tmp_path: Path) -> None:
    whole = run(policy, tmp_path / "whole")

    def stop_after_first(step: int, line) -> None:
        assert step == len(read_metrics(tmp_path / "torn" / "metrics.jsonl"))
        raise Interrupted

    with pytest.raises(Interrupted):
        run(policy, tmp_path / "torn", on_step=stop_after_first)
    # What a kill in the middle of a write leaves behind is dropped too.
    with (tmp_path / "torn" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "rew')
    resumed = run(policy, tmp_path / "torn")
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)
    lines = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "torn")]
    assert [line["step"] for line in lines[0]] == [0, 1, 2]
    for a, b in zip(*lines, strict=True):
        assert untimed(a) == untimed(b)
    assert any(not np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (whole, policy.params)), strict=True))
    assert lines[0][0]["kl_k2"] == pytest.approx(0, abs=1e-9)  # the policy starts at its reference
    assert lines[0][2]["kl_k2"] > 0


def test_bad_gradients_stop_the_run_after_the_set_number_and_save_the_batch(policy, tmp_path: Path) -> None:
    broken = Objective(lambda z, b: (z[:, 0] * jnp.nan, {}))
    with pytest.raises(UserError, match="non-finite gradient"):
        run(policy, tmp_path, replace(SETTINGS, steps=9, kl_coef=0.0, patience=2), objective=broken)
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 1  # one skipped and recorded, the second stopped the run
    saved = np.load(tmp_path / "bad_batch.npz")
    assert saved["target"].shape[:2] == (2, 4)
    assert saved["logp_raw"].shape == saved["target"].shape


def test_no_rows_is_an_error(policy, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="empty"):
        train_rlvr(policy.config, policy.params, [], lambda row: [], policy.tokenizer, (), SETTINGS, tmp_path)


def test_every_epoch_visits_every_prompt_once() -> None:
    flat = np.concatenate([prompt_indices(7, 5, 3 * step, 3) for step in range(14)])
    assert len(flat) == 42
    for epoch in flat.reshape(6, 7):
        assert sorted(epoch) == list(range(7))
    assert (flat[:7] != flat[7:14]).any()
    # More prompts a step than there are rows wraps around into the next shuffle.
    assert sorted(prompt_indices(2, 5, 0, 3)[:2]) == [0, 1]


def test_rewards_leave_out_what_has_no_verdict() -> None:
    def item(status, passed=False, fraction=0.0):
        return Judged("", Verdict(passed, (passed,), fraction, status), "Other", "stop")

    items = [item("correct", True, 1.0), item("wrong", False, 0.5), item("timeout"), item("error")]
    np.testing.assert_array_equal(rewards_of(items, "all", 2), [[1, 0], [np.nan, np.nan]])
    np.testing.assert_array_equal(rewards_of(items, "fraction", 2), [[1, 0.5], [np.nan, np.nan]])


def test_judging_derives_text_and_refuses_cut_responses_where_asked(policy) -> None:
    ids = lambda text: policy.tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    end = policy.tokenizer.eos_token_id
    right = ids("Answer : \\boxed{ <1> 5 <2> 6 } .")
    forced = np.full((2, 12), -1)
    forced[0, : len(right)], forced[0, len(right)] = right, end
    forced[1, : len(right)] = right
    forced[1, len(right) :] = ids(".")[0]
    out = sample(
        policy.config, policy.params, [[5]], SamplingParams(2, 12, stop_ids=policy.stop_ids), 0, forced_tokens=forced
    )
    row = Row("r", "p", "math", gold="<1> 5 <2> 6")
    lenient, strict = (judge([row], out, policy.tokenizer, require_stop=x, extract="boxed") for x in (False, True))
    assert lenient[0].text == "Answer : \\boxed{ <1> 5 <2> 6 } ."
    assert [j.verdict.passed for j in lenient] == [True, True]
    assert [j.verdict.status for j in strict] == ["correct", "truncated"]
    assert [j.finish for j in strict] == ["stop", "length"]
    assert strict[0].opening == "DAI"


def test_checkpoints_come_back_as_they_were_saved(tmp_path: Path) -> None:
    state = {"a": jnp.arange(4.0), "step": jnp.int32(3)}
    assert restore_latest(tmp_path / "c", state) is None
    for step in (1, 2, 3):
        save(tmp_path / "c", step, {**state, "step": jnp.int32(step)})
    step, restored = restore_latest(tmp_path / "c", state)
    assert (step, int(restored["step"])) == (3, 3)
    np.testing.assert_array_equal(restored["a"], state["a"])


def test_metrics_are_rewound_to_the_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text("".join(json.dumps({"step": i}) + "\n" for i in range(5)))
    rewind_metrics(file, 3)
    assert [line["step"] for line in read_metrics(file)] == [0, 1, 2]


def test_pretraining_writes_a_model_that_loads_and_has_learned(tmp_path: Path) -> None:
    losses: list[float] = []
    settings = PretrainSettings(drill_steps=30, mixed_steps=30)
    pretrain(settings, tmp_path, on_step=lambda phase, step, steps, line: losses.append(line["loss"]))
    assert len(losses) == 60
    assert np.mean(losses[25:30]) < 0.5 * losses[0]
    config, _ = load_model(tmp_path)
    assert config.num_tokens == config.vocab_size == len(micro.vocabulary())
    recorded = json.loads((tmp_path / "training.json").read_text())
    assert recorded["command"] == "vsr micro pretrain --out DIR --seed 0 --drill-steps 30 --mixed-steps 30"
    assert recorded["settings"]["seed"] == 0


def test_sft_uses_every_text_in_order(policy) -> None:
    """A text that did not fit one step opens the next: the tokens seen add up to those of the texts consumed."""
    texts = [([1, 2], [5 + i % 7] * (3 + i % 5)) for i in range(40)]
    seen: list[float] = []
    settings = SftSettings(steps=4, rows=2, width=20, learning_rate=0.0)
    train_sft(policy.config, policy.params, iter(texts), settings, on_step=lambda s, line: seen.append(line["tokens"]))
    total, lengths = sum(seen), np.cumsum([len(r) for _, r in texts])
    assert total in lengths


def test_distillation_moves_the_student_towards_the_teacher(policy, tmp_path: Path) -> None:
    rows = micro.math_rows(micro.DEFAULT, 0, 4)
    bent = jax.tree.map(lambda x: x, policy.params)
    bent["final_norm"] = bent["final_norm"] * 0.4  # a much softer copy of the teacher
    settings = OpdSettings(
        steps=6, prompts=2, samples=4, max_tokens=24, loss="reverse", learning_rate=3e-3, micro_prompts=2
    )
    train_opd(
        policy.config,
        bent,
        Model(policy.config, policy.params),
        rows,
        lambda row: policy.encode(row, "micro"),
        policy.tokenizer,
        policy.stop_ids,
        settings,
        tmp_path,
    )
    losses = [line["loss"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert losses[-1] < 0.7 * losses[0]
    for name in ("top_k", "sampled", "reverse", "forward", "jsd"):
        assert opd_objective(OpdSettings(loss=name)).per_token is not None


def test_a_teacher_with_another_vocabulary_is_refused(policy, tmp_path: Path) -> None:
    other = Model(replace(policy.config, num_tokens=7), policy.params)
    with pytest.raises(UserError, match="one vocabulary"):
        train_opd(policy.config, policy.params, other, [], len, None, (), OpdSettings(), tmp_path)


def vsr(monkeypatch: pytest.MonkeyPatch, *args: object) -> None:
    monkeypatch.setattr(sys, "argv", ["vsr", *map(str, args)])
    main()


def test_train_command_takes_a_loss_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = tmp_path / "mine.py"
    loss.write_text(
        "from vsr_jax.scoring import target_logprob\n"
        "def mine(logits, batch):\n"
        "    logp = target_logprob(logits, batch.target)\n"
        "    return -batch.advantage * logp, {'my_logp': logp}\n"
    )
    base = ["train", "rlvr", "--model", BASE, "--benchmark", "micro_math", "--limit", 4, "--out", tmp_path / "run"]
    shape = ["--steps", 1, "--prompts", 2, "--samples", 8, "--max-tokens", 48, "--micro-prompts", 2]
    vsr(monkeypatch, *base, *shape, "--objective", f"{loss}:mine")
    (line,) = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert line["my_logp"] < 0
    config, _ = load_model(tmp_path / "run" / "model")
    assert config.num_tokens == len(micro.vocabulary())
    with pytest.raises(SystemExit):  # the same folder with other settings
        vsr(monkeypatch, *base, *shape[:-2], "--seed", 9)


def test_sft_command_trains_on_texts_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    data = tmp_path / "texts.jsonl"
    data.write_text(
        "".join(json.dumps({"prompt": "What is the result ?", "response": "Sure : 5"}) + "\n" for _ in range(3))
    )
    args = ["train", "sft", "--model", BASE, "--data", data, "--out", tmp_path / "run", "--framing", "micro"]
    vsr(monkeypatch, *args, "--steps", 8, "--rows", 2, "--width", 32, "--learning-rate", 3e-3)
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert lines[-1]["cross_entropy"] < lines[0]["cross_entropy"]
    data.write_text('{"prompt": "x"}\n')
    with pytest.raises(SystemExit) as caught:
        vsr(monkeypatch, *args[:6], "--out", tmp_path / "other")
    assert caught.value.code == 2
    assert "texts.jsonl:1: response" in capsys.readouterr().err
