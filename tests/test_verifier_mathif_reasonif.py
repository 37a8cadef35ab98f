"""MathIF and ReasonIF checks, and the part of a response that each suite judges."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from instruction_cases import TEXTS, both_verdicts, every_check, passes

from vsr_jax.errors import UserError
from vsr_jax.verifiers import check_instructions
from vsr_jax.verifiers.instructions import instruction_ids
from vsr_jax.verifiers.scope import followed_scope
from vsr_jax.verifiers.selfcheck_instructions import agreement, comparisons, tabulate

SUITES = ("mathif", "reasonif")
WORDS = "length_constraint_checkers:number_words"


def check_record(directory: Path, least: int) -> None:
    items = list(comparisons(directory, suites=SUITES))
    print("\n", *tabulate(items), sep="\n")
    assert {item.group for item in items} == {"mathif", "reasonif", "reasonif, language"}
    assert len(items) > least
    assert [item for item in items if item.ours != item.reference] == []


def test_agrees_with_the_sample_of_recorded_verdicts(samples_dir):
    check_record(samples_dir / "verdicts", 100)


def test_agrees_with_the_recorded_verdicts(shared_dir):
    check_record(shared_dir / "data/oracle", 5_000)


@pytest.mark.parametrize(("suite", "count"), [("mathif", 15), ("reasonif", 6)])
def test_every_id_passes_and_fails_something(suite, count, samples_dir):
    found = both_verdicts(samples_dir / "verdicts", suite)
    assert set(found) == set(instruction_ids(suite))
    assert len(found) == count
    assert all(verdicts == {True, False} for verdicts in found.values())


def test_the_agreement_table_has_every_suite_of_the_record(samples_dir, tmp_path):
    table = agreement(samples_dir / "verdicts")
    assert [row["suite"] for row in table] == [
        "ifeval",
        "ifeval",
        "iftrain",
        "mathif",
        "reasonif",
        "reasonif, language",
    ]
    assert all(row["share"] == row["agree"] / row["rows"] for row in table)
    with pytest.raises(UserError, match="no file named"):
        agreement(tmp_path)
    (tmp_path / "mathif_reference_outcomes_dev.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"line 1: no field 'constraint_name'"):
        agreement(tmp_path)
    (tmp_path / "mathif_reference_outcomes_dev.jsonl").write_text("no\n")
    with pytest.raises(UserError, match="line 1: not JSON"):
        agreement(tmp_path)


def test_every_published_row_is_well_formed(shared_dir):
    mathif = (shared_dir / "data/mathif/mathif.jsonl", "mathif", "constraint_name", "constraint_args")
    reasonif = (shared_dir / "data/reasonif/reasonif.jsonl", "reasonif", "constraint_name", "constraint_args")
    ifeval = (shared_dir / "data/ifeval/input_data.jsonl", "ifeval", "instruction_id_list", "kwargs")
    for path, suite, ids, kwargs in (mathif, reasonif, ifeval):
        for line in path.read_text(encoding="utf-8").strip().split("\n"):
            row = json.loads(line)
            assert len(check_instructions(row[ids], row[kwargs], "x", suite=suite).parts) == len(row[ids])


def test_words():
    assert passes(WORDS, "a b", "mathif", num_words=3, relation="less than")
    assert not passes(WORDS, "a b-c", "mathif", num_words=3, relation="less than")
    assert passes(WORDS, "a b", "reasonif", num_words=3)
    assert not passes(WORDS, "a b-c", "reasonif", num_words=3)
    assert not passes(WORDS, "a", "reasonif", num_words=0)
    with pytest.raises(UserError, match="relation"):
        passes(WORDS, "a b", "reasonif", num_words=3, relation="less than")
    with pytest.raises(UserError, match="length_constraints:number_words"):
        passes("length_constraints:number_words", "a", "mathif", num_words=1, relation="at least")


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("ABC", "en", True),
        ("123 456", "en", True),
        ("123 456", "ru", False),
        ("这段推理是用中文写的，讨论的是数字。", "zh", True),
        ("यह वाक्य हिंदी में लिखा गया है।", "hi", True),
        ("هذه الجملة مكتوبة باللغة العربية.", "ar", True),
        ("Cette phrase est écrite en français.", "fr", True),
        ("Cette phrase est écrite en français.", "en", False),
        ("\ud800", "en", True),
    ],
)
def test_language_of_reasoning(text, language, expected):
    assert passes("language:reasoning_language", text, "reasonif", language=language) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("WE HAVE $X^2 = 4$ SO THAT $X = 2$ AND THE ANSWER IS \\BOXED{2}", True),
        ("WE HAVE $x^2 = 4$", False),
        ("DIES IST EIN DEUTSCHER SATZ ÜBER FLÜSSE.", False),
        ("42", False),
    ],
)
def test_reasoning_in_english_capitals(text, expected):
    assert passes("change_case:english_capital", text, "reasonif") == expected


def test_intent_of_shared_instructions():
    assert passes("keywords:forbidden_words", "a $5 note", "mathif", forbidden_words=["$5"])
    assert not passes("keywords:forbidden_words", "a $5 note", "mathif", reading="intent", forbidden_words=["$5"])


# Scope.

THOUGHTS = "Well, let me see, " + "and so on " * 20


@pytest.mark.parametrize("suite", ["ifeval", "iftrain", "ifbench", "ifbench_2025", "mathif"])
def test_thoughts_are_not_the_answer(suite):
    def follows(text: str) -> bool:
        scoped = followed_scope(text, suite)
        short = passes("length_constraints:number_words", scoped, "ifeval", num_words=11, relation="less than")
        return short and passes("punctuation:no_comma", scoped, "ifeval")

    assert follows(f"<think>{THOUGHTS}</think>Short reply here")
    assert follows(f"{THOUGHTS}</think>Short reply here")
    assert follows("<think>a, b</think>c, d<think>e</think>Short reply here")
    assert not follows(f"<think>{THOUGHTS}Short reply here")
    assert not follows("<think>a</think>Short <think>reply here")
    assert follows("Short reply here")
    # Nothing is cut by the check itself.
    assert not passes("punctuation:no_comma", f"<think>{THOUGHTS}</think>Short reply here", "ifeval")


@pytest.mark.parametrize(
    ("text", "suite", "expected"),
    [
        ("<think>a</think> b <answer>c</answer> d", "mathif", "c"),
        ("<think>a <answer>x</answer></think><answer>c</answer>", "mathif", "c"),
        ("b <answer>c", "mathif", "c"),
        ("b", "mathif", "b"),
        ("<think>a</think> b <answer>c</answer> d", "iftrain", "b c d"),
        ("<think>a</think> b <answer>c</answer>", "ifeval", " b <answer>c</answer>"),
        ("<think>a, b</think> c", "reasonif", "a, b"),
        ("a, b</think> c", "reasonif", "a, b"),
        ("<think>a, b", "reasonif", "a, b"),
        ("<think>a</think>b<think>c</think>", "reasonif", "a"),
        ("a <answer>b</answer>", "reasonif", "a <answer>b</answer>"),
        ("", "reasonif", ""),
    ],
)
def test_scope(text, suite, expected):
    assert followed_scope(text, suite) == expected


def test_scope_of_an_unknown_suite():
    with pytest.raises(UserError, match="other"):
        followed_scope("x", "other")


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_no_response_raises(text):
    for suite in SUITES:
        for name, kwargs, reading in every_check(suite):
            passes(name, followed_scope(text, suite), suite, reading=reading, **kwargs)
            passes(name, text, suite, reading=reading, **kwargs)
