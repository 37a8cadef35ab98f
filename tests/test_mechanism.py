"""Localising and intervening on two micro policies: a slightly moved copy of Base stands for a trained one."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from vsr_jax.cli import main
from vsr_jax.data import micro
from vsr_jax.data.micro import BASE
from vsr_jax.errors import UserError
from vsr_jax.mechanism.first_token import candidate_table, first_tokens, mass_by_opening
from vsr_jax.mechanism.localize import _compare, check_same_tokens, teacher_force
from vsr_jax.mechanism.marks import segments
from vsr_jax.mechanism.positions import POSITION_GROUPS, describe_high, first_over_interior, group_means, high_js
from vsr_jax.mechanism.statistics import pair_statistics
from vsr_jax.model import transformer
from vsr_jax.study.measure import MeasureSettings, sample_to_store
from vsr_jax.study.policy import Policy, load_policy, save_policy
from vsr_jax.study.sources import policy_names, stored_responses
from vsr_jax.support import MICRO_RULES


def moved(policy: Policy, size: float, name: str) -> Policy:
    """A copy of a policy with small noise on every weight."""
    leaves, tree = jax.tree.flatten(policy.params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [x + size * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(leaves, keys, strict=True)]
    return replace(policy, name=name, params=jax.tree.unflatten(tree, noisy))


@pytest.fixture(scope="module")
def base() -> Policy:
    return load_policy(BASE, name="Base")


@pytest.fixture(scope="module")
def other(base: Policy) -> Policy:
    return moved(base, 0.03, "Other")


@pytest.fixture(scope="module")
def folder(base: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base's responses to six math prompts, four each."""
    out = tmp_path_factory.mktemp("responses") / "base-math"
    rows = micro.math_rows(micro.DEFAULT, 0, 6, split="evaluation")
    settings = MeasureSettings(4, 48, framing="micro", require_stop=True, extract="boxed")
    sample_to_store(base, rows, settings, out, rules=MICRO_RULES)
    return out


@pytest.fixture(scope="module")
def directory(other: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "moved"
    save_policy(other, out)
    return out


def vsr(*args: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["vsr", *map(str, args)])
    main()


def test_the_pass_equals_whole_logits_of_both_models(base: Policy, other: Policy, folder: Path) -> None:
    table = stored_responses(folder, prompts=3, samples=2)
    prompts, responses = table["prompt_tokens"].to_pylist(), table["tokens"].to_pylist()
    models = [(p.config, p.params) for p in (base, other)]
    found = teacher_force(models, prompts, responses, rows=4)  # the second pass is filled up
    assert found.response.tolist() == [i for i, r in enumerate(responses) for _ in r]
    assert found.position.tolist() == [t + 1 for r in responses for t in range(len(r))]
    width = max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True))
    rows = jnp.asarray([[*p, *r, *[0] * width][:width] for p, r in zip(prompts, responses, strict=True)])
    spans = [np.arange(len(p) - 1, len(p) + len(r) - 1) for p, r in zip(prompts, responses, strict=True)]
    place = np.repeat(np.arange(len(spans)), [len(s) for s in spans]), np.concatenate(spans)
    whole = [transformer.logits(c, p, transformer.hidden_states(c, p, rows))[place] for c, p in models]
    want = jax.jit(pair_statistics)(*whole)
    got = found.pairs[0, 1]
    for name in ("js", "js_top", "kl_pq", "entropy_q", "prob", "rank", "first_q", "overlap"):
        np.testing.assert_allclose(getattr(got, name), getattr(want, name), rtol=2e-3, atol=2e-6, err_msg=name)
    assert got.js.max() > 0.01


def test_no_array_of_tokens_times_vocabulary_in_the_pass(base: Policy) -> None:
    """Every array that has a vocabulary axis holds at most one chunk of tokens."""
    config, vocab = base.config, base.config.num_tokens
    args = ((config, config), (base.params, base.params), jnp.zeros((64, 96), jnp.int32), jnp.full(64, 40), 48)
    text = str(jax.make_jaxpr(_compare, static_argnums=(0, 4))(*args))
    assert f"[128,{vocab}]" in text
    assert f"[64,48,{vocab}]" not in text
    assert f"[3072,{vocab}]" not in text


def test_three_policies_give_every_pair(base: Policy, other: Policy, folder: Path) -> None:
    table = stored_responses(folder, prompts=2, samples=1)
    third = moved(base, 0.01, "Third")
    models = [(p.config, p.params) for p in (base, other, third)]
    found = teacher_force(models, table["prompt_tokens"].to_pylist(), table["tokens"].to_pylist(), rows=2)
    assert set(found.pairs) == {(0, 1), (0, 2), (1, 2)}
    far, near = (np.mean(found.pairs[key].js) for key in ((0, 1), (0, 2)))
    assert far > near > 0
    root = {key: np.sqrt(np.asarray(found.pairs[key].js)) for key in found.pairs}
    assert (root[0, 1] <= root[0, 2] + root[1, 2] + 1e-4).all()  # the root of JS is a metric


class _Words:
    def __init__(self, *words: str):
        self.words = words

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}


def test_other_vocabularies_are_refused(base: Policy) -> None:
    configs = [base.config] * 2
    check_same_tokens(["a", "b"], [_Words("x", "y"), _Words("x", "y")], configs)
    with pytest.raises(UserError, match="2 and 3 entries"):
        check_same_tokens(["a", "b"], [_Words("x", "y"), _Words("x", "y", "z")], configs)
    with pytest.raises(UserError, match="2 of the second at another id"):
        check_same_tokens(["a", "b"], [_Words("x", "y"), _Words("y", "x")], configs)
    sizes = [base.config, replace(base.config, num_tokens=base.config.num_tokens - 1)]
    with pytest.raises(UserError, match="different vocabularies"):
        check_same_tokens(["a", "b"], [_Words("x"), _Words("x")], sizes)


def test_position_groups_cut_responses_as_the_recipe_says() -> None:
    position, length = np.arange(1, 101), np.full(100, 100)
    held = {g.name: position[g.members(position, length)].tolist() for g in POSITION_GROUPS["recipe"]}
    assert held["1"] == [1]
    assert held["2-4"] == [2, 3, 4]
    assert held["5-16"] == list(range(5, 17))
    assert held["17-63"] == list(range(17, 64))
    assert held["interior > 63"] == list(range(64, 96))
    assert held["last 5 %"] == list(range(96, 101))
    short = {g.name: g.members(position[:48], np.full(48, 48)).sum() for g in POSITION_GROUPS["recipe"]}
    assert short["interior > 63"] == 0
    assert POSITION_GROUPS["micro"][3].members(position[:48], np.full(48, 48)).sum() == 48 - 8 - 3


def test_ratio_resamples_prompts_and_leaves_out_those_without_an_interior(base: Policy, other: Policy, folder: Path):
    table = stored_responses(folder, prompts=None, samples=None)
    models = [(p.config, p.params) for p in (base, other)]
    found = teacher_force(models, table["prompt_tokens"].to_pylist(), table["tokens"].to_pylist())
    owner, groups, js = np.repeat(np.arange(6), 4), POSITION_GROUPS["micro"], np.asarray(found.pairs[0, 1].js)
    means = group_means(found, js, owner, groups)
    mine = owner[found.response] == 2
    inner = mine & (found.position > 8) & (found.position <= found.length - np.ceil(0.05 * found.length))
    assert means[2, 3] == pytest.approx(js[inner].mean(), rel=1e-5)
    ratio = first_over_interior(means, groups, draws=500)
    assert ratio.value == pytest.approx(means[:, 0].mean() / means[:, 3].mean())
    assert ratio.low < ratio.value < ratio.high
    means[0, 3] = np.nan
    assert first_over_interior(means, groups, draws=50).left_out == 1
    recipe = POSITION_GROUPS["recipe"]
    none = first_over_interior(group_means(found, js, owner, recipe), recipe)
    assert np.isnan(none.value)
    assert none.left_out == 6

    high = describe_high(found, found.pairs[0, 1], groups)
    order = np.sort(js)[::-1]
    assert high.count == -(-len(js) // 10)
    assert high.threshold == pytest.approx(order[high.count - 1])
    assert high.mass == pytest.approx(order[: high.count].sum() / js.sum(), rel=1e-5)
    assert high_js(np.array([1.0, 3.0, 3.0, 0.0])).tolist() == [False, True, False, False]


def test_first_tokens_and_what_they_lead_to(base: Policy, folder: Path) -> None:
    table = stored_responses(folder, prompts=None, samples=None)
    prompts = list(
        {p: t for p, t in zip(*(table[c].to_pylist() for c in ("prompt_id", "prompt_tokens")), strict=True)}.values()
    )
    found = first_tokens(base.config, base.params, prompts, k=3, rows=4)
    hidden = transformer.hidden_states(base.config, base.params, jnp.asarray([prompts[4]]))[0, -1]
    probs = np.asarray(jax.nn.softmax(transformer.logits(base.config, base.params, hidden)))
    np.testing.assert_array_equal(found.ids[4], np.argsort(-probs)[:3])
    np.testing.assert_allclose(found.probs[4], np.sort(probs)[::-1][:3], rtol=1e-4)
    assert found.mean.sum() == pytest.approx(1, abs=1e-4)
    first, openings = [t[0] for t in table["tokens"].to_pylist()], table["opening"].to_pylist()
    mass = mass_by_opening([found.mean], first, openings)
    assert sum(values[0] for values in mass.values()) == pytest.approx(1, abs=1e-4)
    assert mass["DRI"][0] > 0.1
    means = [np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])]
    words = base.tokenizer
    rows = candidate_table(means, [0, 0, 0, 1], ["DRI", "DRI", "Other", "DAI"], words, count=2)
    assert [(c.token, c.opening, c.seen) for c in rows] == [(2, "unseen", 0), (0, "DRI", 3)]
    assert rows[1].agreement == pytest.approx(2 / 3)
    split = mass_by_opening(means, [0, 0, 0, 1], ["DRI", "DRI", "Other", "DAI"])
    assert split["DRI"] == pytest.approx((0.5 * 2 / 3, 0.1 * 2 / 3))
    assert split["unseen"] == pytest.approx((0.2, 0.8))


def test_marks_spell_out_the_text(base: Policy) -> None:
    ids = base.tokenizer.encode("Let us solve this .", add_special_tokens=False)
    text = base.tokenizer.decode(ids)
    got = segments(base.tokenizer, ids, ["forced", "", "", "high_js", "high_js"], text)
    assert "".join(piece for piece, _ in got) == text
    assert [(piece.strip(), mark) for piece, mark in got] == [
        ("Let", "forced"), ("us solve", ""), ("this .", "high_js"),
    ]  # fmt: skip


def test_policy_names_come_from_what_differs() -> None:
    assert policy_names(["runs/a-1/model", "runs/b-2/model"], ()) == ["a-1", "b-2"]
    assert policy_names(["Qwen/Qwen2.5-0.5B"], ()) == ["Qwen2.5-0.5B"]
    with pytest.raises(UserError, match="2 different names"):
        policy_names(["a", "b"], ("x",))
    with pytest.raises(UserError, match="given twice"):
        policy_names(["a", "a"], ())


def test_localize_writes_tables_figures_tokens_and_page(
    directory: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "out"
    args = ["localize", "--models", BASE, directory, "--names", "Base", "Moved", "--responses", folder]
    vsr(*args, "--positions", "micro", "--out", out, monkeypatch=monkeypatch)
    printed = capsys.readouterr().out
    assert "Base vs Moved" in printed
    assert "first / interior" in printed
    page = (out / "index.html").read_text()
    assert "high_js" in page
    assert all((out / f"{name}.svg").exists() for name in ("js_by_position", "ratio", "first_tokens"))
    tokens = pq.read_table(out / "tokens-base-math.parquet")
    assert tokens.num_rows == sum(map(len, stored_responses(folder, prompts=None, samples=None)["tokens"].to_pylist()))
    assert "js:Base|Moved" in tokens.column_names
    assert json.loads((out / "settings.json").read_text())["positions"] == "micro"
