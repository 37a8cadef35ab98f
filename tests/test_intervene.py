"""Interventions on micro policies: the seam, one queue, stored and asserted forced tokens, paired effects."""

import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from vsr_jax.cli import main
from vsr_jax.data import micro
from vsr_jax.data.micro import BASE
from vsr_jax.data.store import read_rollouts
from vsr_jax.errors import UserError
from vsr_jax.mechanism.first_token import FirstTokens
from vsr_jax.mechanism.intervene import (
    MICRO_TEXTS,
    RECIPE_TEXTS,
    Forcing,
    forced_matrix,
    free,
    frequent_tokens,
    matched_ids,
    other_first,
    own_second,
    reached,
    text_forcing,
    text_ids,
)
from vsr_jax.sampling.types import Rollouts
from vsr_jax.study.intervene import effects, folder_of, sample_conditions
from vsr_jax.study.measure import MeasureSettings, sample_to_store
from vsr_jax.study.policy import Policy, load_policy, save_policy
from vsr_jax.support import MICRO_RULES

SETTINGS = MeasureSettings(4, 48, framing="micro", require_stop=True, extract="boxed", rows=16)


class ByteWords:
    """A tokenizer of single characters that merges a blank with the word after it, as byte-level ones do."""

    all_special_ids = (0,)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, ids: list[int], **_: object) -> str:
        return "".join(map(chr, ids))


@pytest.fixture(scope="module")
def base() -> Policy:
    return load_policy(BASE, name="Base")


def test_the_seam_moves_blanks_to_the_policy_and_keeps_line_ends() -> None:
    words = ByteWords()
    ids, text = text_ids(words, "Answer: ")
    assert text == "Answer:"
    assert ids[-1] == ord(":")
    assert text_ids(words, "Answer: ", "exact")[1] == "Answer: "
    assert text_ids(words, RECIPE_TEXTS.dri)[1].endswith("step.\n\n")
    with pytest.raises(UserError, match="nothing but blanks"):
        text_ids(words, "  ")


def test_text_that_the_tokenizer_cannot_spell_is_refused(base: Policy) -> None:
    assert text_ids(base.tokenizer, MICRO_TEXTS.dri)[1] == MICRO_TEXTS.dri
    with pytest.raises(UserError, match="spells it as"):
        text_ids(base.tokenizer, "Nevertheless :")


def test_neutral_prefix_is_as_long_as_the_deliberate_one(base: Policy) -> None:
    for tokenizer, texts in ((base.tokenizer, MICRO_TEXTS), (ByteWords(), RECIPE_TEXTS)):
        wanted = len(text_ids(tokenizer, texts.dri)[0])
        assert len(matched_ids(tokenizer, texts.neutral, wanted)[0]) == wanted
    assert matched_ids(ByteWords(), "ab", 5)[1] == "ababa"


def test_conditions_take_the_tokens_they_name() -> None:
    tokens = FirstTokens(np.array([[5, 7], [8, 5]]), np.zeros((2, 2)), np.zeros(9))
    assert other_first(tokens).ids == ((5,), (8,))
    assert own_second(tokens).ids == ((7,), (5,))
    assert other_first(tokens, 4).position == 4
    prompts = [[0, 3, 3, 4], [3, 4, 6]]
    drawn = frequent_tokens(ByteWords(), prompts, ["a", "b"], 1, exclude=[6])
    assert {i for (i,) in drawn.ids} <= {3, 4}
    assert drawn == frequent_tokens(ByteWords(), prompts, ["a", "b"], 1, exclude=[6])


def test_forced_matrix_is_condition_major_and_refuses_what_does_not_fit() -> None:
    got = forced_matrix([free(2), Forcing("x", ((5, 6), (7,)), position=2)], 2, 4)
    assert got.tolist() == [[-1] * 4] * 4 + [[-1, 5, 6, -1]] * 2 + [[-1, 7, -1, -1]] * 2
    with pytest.raises(UserError, match="'x' forces position 5"):
        forced_matrix([Forcing("x", ((5, 6),), position=4)], 1, 4)


def rollouts_of(tokens: list[list[int]], length: list[int], sampled: list[list[bool]]) -> Rollouts:
    n = len(tokens)
    zero = np.zeros(np.shape(tokens))
    return Rollouts(
        np.array(tokens), np.array(length), np.array(sampled), zero, zero, np.zeros(n), np.zeros(n), np.arange(n),
        np.zeros(n), np.ones((1, 1)), np.ones(1),
    )  # fmt: skip


def test_a_lacking_forced_token_is_a_fault_and_a_response_that_ended_before_it_is_not() -> None:
    forced = np.array([[-1, 5, -1], [-1, 5, -1]])
    good = rollouts_of([[1, 5, 2], [1, 0, 0]], [3, 1], [[True, False, True], [True, False, False]])
    assert reached(good, forced).tolist() == [True, False]
    bad = rollouts_of([[1, 6, 2], [1, 0, 0]], [3, 1], [[True, False, True], [True, False, False]])
    with pytest.raises(RuntimeError, match="position 2"):
        reached(bad, forced)


@pytest.fixture(scope="module")
def run(base: Policy, tmp_path_factory: pytest.TempPathFactory):
    rows = micro.math_rows(micro.DEFAULT, 0, 5, split="evaluation")
    forcings = [
        free(5),
        text_forcing("DRI prefix", *text_ids(base.tokenizer, MICRO_TEXTS.dri), 5),
        text_forcing("DAI prefix", *text_ids(base.tokenizer, MICRO_TEXTS.dai), 5),
        Forcing("late", ((20,),) * 5, position=20),
    ]
    out = tmp_path_factory.mktemp("conditions")
    seen: list[tuple[int, int]] = []
    tables = sample_conditions(
        base, rows, forcings, SETTINGS, out, rules=MICRO_RULES, progress=lambda a, b: seen.append((a, b))
    )
    return rows, forcings, out, tables, seen


def test_every_row_holds_its_forced_tokens_and_the_prompt_is_unchanged(base: Policy, run) -> None:
    rows, forcings, _, tables, seen = run
    assert seen[-1] == (80, 80)
    prompts = {row.id: base.encode(row, "micro") for row in rows}
    for forcing in forcings:
        table = tables[forcing.name].to_pylist()
        assert len(table) == 20
        for item in table:
            assert item["prompt_tokens"] == prompts[item["prompt_id"]]
            begin = forcing.position - 1
            for offset, token in enumerate(forcing.ids[0]):
                if begin + offset < len(item["tokens"]):
                    assert item["tokens"][begin + offset] == token
                    assert not item["sampled"][begin + offset]
            assert item["text"].startswith(forcing.text)
            assert sum(not s for s in item["sampled"]) <= len(forcing.ids[0])


def test_the_free_condition_is_the_measurement_of_the_same_seed(base: Policy, run, tmp_path: Path) -> None:
    rows, _, _, tables, _ = run
    plain = sample_to_store(base, rows, SETTINGS, tmp_path, rules=MICRO_RULES)
    assert tables["free"]["tokens"].to_pylist() == plain["tokens"].to_pylist()


def test_what_is_stored_is_not_sampled_again(base: Policy, run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, forcings, out, tables, _ = run
    monkeypatch.setattr("vsr_jax.study.intervene.sample", None)  # a call would fail
    again = sample_conditions(base, rows, forcings, SETTINGS, out, rules=MICRO_RULES)
    assert all(again[name].equals(tables[name]) for name in tables)


def test_openings_and_effects_follow_what_was_forced(run) -> None:
    rows, forcings, _, tables, _ = run
    found = effects(tables, rows, forcings, 4, policy="Base", benchmark="micro_math", rules=MICRO_RULES)
    assert found["DRI prefix"].measured.openings["DRI"] == 1
    assert found["DAI prefix"].measured.openings["DAI"] == 1
    assert found["DRI prefix"].chain > found["DAI prefix"].chain
    assert found["free"].mean.difference == 0
    assert found["free"].reached == 1
    assert found["late"].reached < 1  # direct answers end before position 20
    rate = {name: np.mean(table["passed"].to_pylist()) for name, table in tables.items()}
    assert found["DAI prefix"].mean.difference == pytest.approx(rate["DAI prefix"] - rate["free"])


def test_all_conditions_share_one_compiled_decoder(base: Policy, run, tmp_path: Path) -> None:
    from vsr_jax.sampling import device

    rows = run[0]
    before = device.decode_chunk._cache_size()
    # The longest prefix is that of the first queue: it lies with the prompt, whose width is a shape.
    other = [free(5), text_forcing("DRI prefix", *text_ids(base.tokenizer, MICRO_TEXTS.dri), 5)]
    more = [Forcing("at 3", ((21,),) * 5, position=3), Forcing("at 5", ((22,),) * 5, position=5)]
    sample_conditions(base, rows, [*other, *more], replace(SETTINGS, seed=7), tmp_path, rules=MICRO_RULES)
    assert device.decode_chunk._cache_size() == before


def vsr(*args: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["vsr", *map(str, args)])
    main()


def test_intervene_both_ways_with_a_sweep(
    base: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    leaves, tree = jax.tree.flatten(base.params)
    moved = jax.tree.unflatten(tree, [x * 1.05 for x in leaves])
    save_policy(replace(base, params=moved), tmp_path / "moved")
    out = tmp_path / "out"
    args = ["intervene", "--model", BASE, "--other", tmp_path / "moved", "--names", "Base", "Moved", "--reverse"]
    args += ["--benchmark", "micro_math", "--limit", 2, "--samples", 2, "--max-tokens", 48, "--sweep", 1, 4]
    vsr(*args, "--conditions", "other", "neutral", "--text", "Sure :", "--out", out, monkeypatch=monkeypatch)
    printed = capsys.readouterr().out
    assert printed.count("slot occupancy") == 2
    for word in ("| Base | free", "| Moved | other's first token at 4", "neutral prefix, as long", "text Sure :"):
        assert word in printed
    assert (out / "sweep.svg").exists()
    assert '"forced"' in (out / "index.html").read_text()
    stored = read_rollouts(folder_of(out / "Moved", "text Sure :"))
    assert all(text.startswith("Sure :") for text in stored["text"].to_pylist())


def test_conditions_that_need_another_model_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    args = ["intervene", "--model", BASE, "--benchmark", "micro_math", "--out", tmp_path / "out"]
    for extra, message in ((["--sweep", 1], "--sweep forces"), (["--conditions", "dry"], "--conditions dry")):
        with pytest.raises(SystemExit) as caught:
            vsr(*args, *extra, monkeypatch=monkeypatch)
        assert caught.value.code == 2
        assert message in capsys.readouterr().err
