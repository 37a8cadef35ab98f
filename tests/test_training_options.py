"""Options of the loops: dynamic sampling, several updates a step, recomputed log-probabilities, sinks, resuming."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vsr_jax.data import micro
from vsr_jax.data.micro import BASE
from vsr_jax.errors import UserError
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import SamplingParams
from vsr_jax.study.policy import load_policy
from vsr_jax.training import rounds
from vsr_jax.training.checkpoint import read_metrics, untimed
from vsr_jax.training.on_policy import advantages_of, learning_rate, train_opd, train_rlvr
from vsr_jax.training.rounds import Round, Source, draw, take_groups
from vsr_jax.training.settings import OpdSettings, RlvrSettings, SftSettings
from vsr_jax.training.sft import train_sft
from vsr_jax.training.sinks import open_sinks
from vsr_jax.training.step import Model

SETTINGS = RlvrSettings(
    steps=2,
    prompts=2,
    samples=4,
    max_tokens=24,
    learning_rate=1e-3,
    micro_prompts=1,
    checkpoint_every=1,
    reward="fraction",
    extract="boxed",
    seed=3,
)


class Interrupted(Exception):
    pass


def stop_after_first(step: int, line) -> None:
    raise Interrupted


@pytest.fixture(scope="module")
def policy():
    return load_policy(BASE, name="Base")


def run(policy, out: Path, settings, **kwargs):
    rows = micro.instruction_rows(micro.DEFAULT, 0, 7)
    encode = lambda row: policy.encode(row, "micro")  # noqa: E731
    params = train_rlvr(
        policy.config, policy.params, rows, encode, policy.tokenizer, policy.stop_ids, settings, out, **kwargs
    )
    return params, read_metrics(out / "metrics.jsonl")


@pytest.fixture(scope="module")
def everything() -> RlvrSettings:
    return replace(
        SETTINGS,
        rounds=3,
        mini_prompts=1,
        temperature=0.8,
        top_p=0.9,
        importance="warped",
        kl_metric=True,
        entropy_coef=0.01,
        overlong_buffer=8,
        schedule="cosine",
        warmup=1,
        keep=1,
        keep_every=1,
    )


def test_all_options_together_resume_exactly_and_report_every_term(policy, everything, tmp_path: Path) -> None:
    whole, lines = run(policy, tmp_path / "whole", everything)
    with pytest.raises(Interrupted):
        run(policy, tmp_path / "torn", everything, on_step=stop_after_first)
    resumed, again = run(policy, tmp_path / "torn", everything)
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)
    assert [untimed(line) for line in again] == [untimed(line) for line in lines]
    first, last = lines
    # The trainer's log-probabilities are the denominator: the first update starts at a ratio of one, later ones do not.
    assert first["ratio_max"] > 1 + 1e-4
    # Truncation raises what the sampler drew from above the policy.
    assert first["importance"] <= 1 + 1e-4
    assert first["kl_reference"] == pytest.approx(0, abs=1e-6)
    assert last["kl_reference"] > 0
    assert {"policy_loss", "entropy_bonus", "clipped_low", "clipped_high", "grad_norm", "tokens_per_s"} <= first.keys()
    assert first["prompts_drawn"] in (2, 4, 6)
    assert last["cursor"] == first["prompts_drawn"] + last["prompts_drawn"]
    kept = {p.name for p in (tmp_path / "whole" / "checkpoints").iterdir() if p.name.isdigit()}
    assert kept == {"1", "2"}
    with pytest.raises(UserError, match=r"temperature = 0\.8, this one has 0\.7"):
        run(policy, tmp_path / "torn", replace(everything, temperature=0.7))


def fake_round(policy, rewards: np.ndarray, first: int) -> Round:
    prompts, n = rewards.shape
    out = sample(
        policy.config,
        policy.params,
        [[5] * (1 + first % 3)] * prompts,
        SamplingParams(n, 4),
        seed=1,
        prompt_ids=range(first, first + prompts),
    )
    rows = prompts * n
    return Round(out, rewards, np.zeros(rows, bool), np.full(rows, b"DRI", "S64"), 0.0, 0.0)


def test_silent_groups_are_replaced_and_statistics_see_everything(policy, monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([[[1, 1], [0, 1]], [[0, 0], [0, 0]], [[1, 0], [1, 0]]])
    monkeypatch.setattr(
        rounds,
        "draw_round",
        lambda c, p, source, s, first, seed: fake_round(policy, np.array(next(given), float), first),
    )
    settings = replace(SETTINGS, samples=2, rounds=5)
    drawn, chosen, cursor = draw(policy.config, policy.params, Source([], len, None, ()), settings, 10, 0)
    assert cursor == 16  # three rounds were enough
    assert drawn.rewards.shape == (6, 2)
    assert chosen.tolist() == [1, 4]
    advantages = advantages_of(drawn, settings)
    assert (advantages[[0, 2, 3]] == 0).all()
    taken = take_groups(drawn.rollouts, chosen)
    assert taken.prompt_id.tolist() == [11, 11, 14, 14]
    assert taken.prompt_index.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(taken.tokens, drawn.rollouts.tokens[[2, 3, 8, 9]])
    # At the limit silent groups fill up, so that the shapes stay.
    given = iter([[[1, 1], [0, 1]], [[0, 0], [0, 0]]])
    _, chosen, cursor = draw(policy.config, policy.params, Source([], len, None, ()), replace(settings, rounds=2), 0, 0)
    assert (chosen.tolist(), cursor) == ([1, 0], 4)


def test_advantages_by_name_and_the_overlong_penalty(policy) -> None:
    drawn = fake_round(policy, np.array([[1.0, 0.0, 0.0, np.nan]]), 0)
    rloo = advantages_of(drawn, replace(SETTINGS, advantage="rloo"))
    np.testing.assert_allclose(rloo, [[1, -0.5, -0.5, 0]])
    # Every response is as long as the limit: the penalty is the same for all and cancels within the group.
    long = advantages_of(drawn, replace(SETTINGS, advantage="rloo", max_tokens=4, overlong_buffer=2))
    np.testing.assert_allclose(long, rloo, atol=1e-6)
    batch = advantages_of(drawn, replace(SETTINGS, advantage="reinforce++", max_tokens=4, overlong_buffer=2))
    assert abs(batch.sum()) < 1e-5


def test_learning_rates() -> None:
    settings = replace(SETTINGS, steps=4, mini_prompts=1, warmup=2, learning_rate=1.0)
    flat, cosine = learning_rate(settings), learning_rate(replace(settings, schedule="cosine"))
    assert [float(flat(i)) for i in (0, 1, 2, 7)] == [0.5, 0.75, 1, 1]
    assert float(cosine(2)) == 1
    assert float(cosine(5)) == pytest.approx(0.5)
    assert float(cosine(8)) == pytest.approx(0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mini_prompts": 3, "prompts": 4}, "mini_prompts is 3"),
        ({"rounds": 0}, "rounds is 0"),
        ({"overlong_buffer": 99}, "overlong_buffer is 99"),
        ({"importance": "raw", "old_logp": "sampler"}, "old_logp"),
        ({"importance": "raw", "temperature": 0.5}, "use warped"),
        ({"old_logp": "sampler", "temperature": 0.5, "top_p": 0.9}, "truncation"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(change, says) -> None:
    with pytest.raises(UserError, match=says):
        replace(SETTINGS, **change).check()


def test_distillation_of_stored_top_k_over_several_updates(policy, tmp_path: Path) -> None:
    rows = micro.math_rows(micro.DEFAULT, 0, 4)
    bent = jax.tree.map(jnp.array, policy.params)  # copies, which the run may use up
    bent["final_norm"] = bent["final_norm"] * 0.4
    settings = OpdSettings(steps=1, prompts=2, mini_prompts=1, samples=4, max_tokens=16, top_k=4, learning_rate=3e-3)
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
        take=True,
    )
    (line,) = read_metrics(tmp_path / "metrics.jsonl")
    assert 0 < line["top_k_mass"] < 1
    assert line["applied"] == 1
    assert line["top_k_kl"] < 0  # the softer student gives its likeliest tokens less than the teacher does


def test_supervised_training_goes_on_from_its_checkpoint(policy, tmp_path: Path) -> None:
    texts = [([1, 2], [5 + i % 7] * (3 + i % 5)) for i in range(60)]
    settings = SftSettings(steps=4, rows=2, width=20, learning_rate=1e-3, checkpoint_every=1)

    def train(out: Path, **kwargs):
        return train_sft(
            policy.config,
            policy.params,
            iter(texts),
            kwargs.pop("settings", settings),
            metrics_file=out / "metrics.jsonl",
            checkpoints=out / "checkpoints",
            **kwargs,
        )

    whole = train(tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(tmp_path / "torn", on_step=stop_after_first)
    resumed = train(tmp_path / "torn")
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)
    both = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "torn")]
    assert both[0] == both[1]
    assert len(both[0]) == 4
    with pytest.raises(UserError, match="width = 20"):
        train(tmp_path / "torn", settings=replace(settings, width=24))


def test_metrics_reach_the_named_sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list = []
    writer = SimpleNamespace(
        add_text=lambda name, text: seen.append(name),
        add_scalar=lambda name, value, step: seen.append((name, value, step)),
        close=lambda: seen.append("closed"),
    )
    started = SimpleNamespace(log=lambda line, step: seen.append((line, step)), finish=lambda: seen.append("finished"))
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=lambda folder: writer))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **kwargs: started))
    with open_sinks(("tensorboard", "wandb"), tmp_path, {"seed": 1}) as on_step:
        on_step(3, {"reward": 0.5})
    assert seen == ["settings", ("reward", 0.5, 3), ({"reward": 0.5}, 3), "finished", "closed"]


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_sink_whose_package_is_missing_says_what_to_install(name, package, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"pip install 'vsr-jax\[logging\]'"), open_sinks((name,), tmp_path, {}):
        pass


def test_metrics_are_plain_json(policy, tmp_path: Path) -> None:
    _, (line,) = run(policy, tmp_path, replace(SETTINGS, steps=1, kl_metric=True, loss="gspo", reducer="sequence_mean"))
    assert json.loads(json.dumps(line)) == line
    for name in ("loss", "reward", "entropy", "kl_reference", "groups_mixed", "length", "truncated", "ratio", "tokens"):
        assert isinstance(line[name], float | int), name
