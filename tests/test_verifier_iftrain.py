"""IFTrain checks: the 29 instructions beyond IFEval, in both readings."""

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from instruction_cases import TEXTS, both_verdicts, every_check, passes

from vsr_jax.errors import UserError
from vsr_jax.verifiers import check_instructions
from vsr_jax.verifiers.instructions import instruction_ids, unsatisfiable
from vsr_jax.verifiers.selfcheck_instructions import comparisons, tabulate

COMPOSITION = "count:counting_composition"


def iftrain(name: str, response: str, **kwargs) -> bool:
    return passes(name, response, "iftrain", **kwargs)


def check_record(directory: Path) -> None:
    items = list(comparisons(directory, suites=("iftrain",)))
    print("\n", *tabulate(items), sep="\n")
    assert len(items) > 150
    assert [item for item in items if item.ours != item.reference] == []


def test_agrees_with_the_sample_of_recorded_verdicts(samples_dir):
    check_record(samples_dir / "verdicts")


def test_agrees_with_the_recorded_verdicts(shared_dir):
    check_record(shared_dir / "data/oracle")


def test_every_row_of_a_training_file_is_well_formed(shared_dir):
    lines = (shared_dir / "data/iftrain/synthetic_iftrain_format.jsonl").read_text(encoding="utf-8").strip().split("\n")
    for line in lines:
        (truth,) = ast.literal_eval(json.loads(line)["ground_truth"])
        ids = truth["instruction_id"]
        assert len(check_instructions(ids, truth["kwargs"], "x", suite="iftrain").parts) == len(ids)


def test_every_id_passes_and_fails_something(samples_dir):
    found = both_verdicts(samples_dir / "verdicts", "ifevalg")
    new = set(instruction_ids("iftrain")) - set(instruction_ids("ifeval"))
    assert len(new) == 29
    assert set(found) == set(instruction_ids("iftrain"))
    # The record has no failure of this one; a word between two blanks fails it.
    assert not iftrain("keywords:exclude_word_harder", "a kiwi b", keyword="kiwi")
    assert {name for name, verdicts in found.items() if verdicts != {True, False}} == {"keywords:exclude_word_harder"}


@pytest.mark.parametrize(
    ("text", "reference", "intent"),
    [
        ("Cats run. Dogs sleep.", False, True),
        ("Cats run, dogs sleep", True, True),
        ("Cats run, dogs, birds", False, True),
        ("Cats run. Dogs run.", False, False),
        ("The cat saw the dog", True, False),
        ("can't won't", False, True),
        ("one two three", True, True),
    ],
)
def test_unique_words_are_not_marks(text, reference, intent):
    assert iftrain("count:count_unique", text) == reference
    assert iftrain("count:count_unique", text, reading="intent") == intent


@pytest.mark.parametrize(
    ("text", "reference", "intent"),
    [
        ("Cats run. Dogs sleep.\n* * *\nBirds fly. Fish swim.\n* * *\nBees hum. Ants march.", False, True),
        ("Cats run. Dogs sleep.\n***\nBirds fly. Fish swim.\n***\nBees hum. Ants march.", False, True),
        ("Cats run. Dogs sleep.\n* * *\nBirds fly. Fish swim.", False, False),
        ("Cats run. Dogs sleep now.\n* * *\nBirds fly. Fish swim.\n* * *\nBees hum. Ants march.", False, False),
        ("Cats. Dogs. *** Birds. Fish. *** Bees. Ants.", True, False),
    ],
)
def test_composition_of_three_paragraphs(text, reference, intent):
    assert iftrain(COMPOSITION, text, n_sent=2, n_words=2) == reference
    assert iftrain(COMPOSITION, text, reading="intent", n_sent=2, n_words=2) == intent


def test_dead_instructions_are_named_with_a_reason():
    ids = [COMPOSITION, "count:count_unique", "punctuation:no_comma", COMPOSITION]
    assert set(unsatisfiable(ids)) == {COMPOSITION, "count:count_unique"}
    assert all(unsatisfiable(ids).values())
    assert unsatisfiable(ids, reading="intent") == {}
    assert unsatisfiable(ids, suite="ifbench") == {}


PHRASE = {"phrase": "Time flies when having fun", "small_n": 2}
COPY = {"prompt_to_repeat": "Say kiwi."}


@pytest.mark.parametrize(
    ("name", "kwargs", "text", "reference", "intent"),
    [
        ("copy:repeat_phrase", PHRASE, "Time flows when having fun. Time flies when eating fun", True, True),
        ("copy:repeat_phrase", PHRASE, "Time flies when having fun. Time flies when eating fun", True, False),
        ("copy:repeat_phrase", PHRASE, "Time flies when eating fun. Time flies when having fun", False, False),
        ("copy:repeat_phrase", PHRASE, "Time flows when eating fun. Time flies when eating fun", False, False),
        ("copy:repeat_phrase", PHRASE, "Time flies when eating fun", False, False),
        ("copy:repeat_phrase", PHRASE, "Time flies when we are fun. Time flies when eating fun", False, False),
        ("copy:copy", COPY, " say KIWI.\n", True, True),
        ("copy:copy", COPY, "Say kiwi. Kiwi.", False, False),
        ("copy:copying_simple", COPY, "Say kiwi.", True, True),
        ("copy:copying_multiple", COPY | {"N": 2}, "Say kiwi.\n******\nsay kiwi.", True, True),
        ("copy:copying_multiple", COPY | {"N": 2}, "Say kiwi.", False, False),
        ("new:copy_span_idx", COPY | {"n_start": 0, "n_end": 5}, "Say k", True, False),
        ("new:copy_span_idx", COPY | {"n_start": 0, "n_end": 4}, "Say k", False, True),
        ("detectable_format:sentence_hyphens", {}, "I run.-You sit.", True, True),
        ("detectable_format:sentence_hyphens", {}, "I run. - You sit.", False, False),
        ("detectable_format:sentence_hyphens", {}, "I run. You sit.", False, False),
        ("detectable_format:square_brackets", {}, "[a] [b]", True, True),
        ("detectable_format:square_brackets", {}, "[a b]", False, False),
        ("detectable_format:bigram_wrapping", {}, "<<I am>> <<at home>>", True, True),
        ("detectable_format:bigram_wrapping", {}, "<<I am at>>", False, False),
        ("keywords:no_adjacent_consecutive", {}, "ant cat bee", True, True),
        ("keywords:no_adjacent_consecutive", {}, "ant Bee", False, False),
        ("keywords:no_adjacent_consecutive", {}, "İstanbul ant", False, False),
        ("keywords:word_once", {"keyword": "cat"}, "cat and cat", False, True),
        ("keywords:word_once", {"keyword": "cat"}, "category", True, False),
        (
            "keywords:word_count_different_numbers",
            {"keyword": "cat", "frequency": 2, "relation": "at least"},
            "cat cat cat",
            True,
            False,
        ),
        (
            "keywords:word_count_different_numbers",
            {"keyword": "cat", "frequency": 2, "relation": "less than"},
            "cat, cat",
            False,
            True,
        ),
        ("keywords:exclude_word_harder", {"keyword": "cat"}, "Cat! A cat.", True, False),
        ("keywords:exclude_word_harder", {"keyword": "cat"}, "category", True, True),
        ("keywords:palindrome", {}, "I go", True, False),
        ("keywords:palindrome", {}, "See: Level!", False, True),
        ("keywords:palindrome", {}, "cats", False, False),
        ("keywords:keyword_specific_position", {"keyword": "cats", "n": 2, "m": 2}, "Hi. Well, cats run.", False, True),
        ("keywords:keyword_specific_position", {"keyword": "cats", "n": 2, "m": 3}, "Hi. Well, cats run.", True, False),
        ("keywords:keyword_specific_position", {"keyword": ["cats"], "n": 2, "m": 1}, "Hi. cats", True, True),
        ("keywords:keyword_specific_position", {"keyword": "cats", "n": 3, "m": 1}, "Hi. cats", False, False),
        ("keywords:start_end", {}, "Well, I am well", True, True),
        ("keywords:start_end", {}, "Well, I am well.", False, False),
        ("keywords:start_end", {}, "Don't say don't", False, True),
        ("keywords:start_end", {}, "Well", False, False),
        ("paragraphs:paragraphs", {}, "a\n***\nb", True, True),
        ("paragraphs:paragraphs", {}, "a\n\nb", False, False),
        ("paragraphs:paragraphs2", {}, "a\n\nb", True, True),
        ("paragraphs:paragraphs2", {}, "a\n\n\n\nb", False, True),
        ("paragraphs:paragraphs2", {}, "a\n\nb\n\nc", False, False),
        ("first_word:first_word_sent", {"first_word": "hi"}, "Hi you. hi me.", True, True),
        ("first_word:first_word_sent", {"first_word": "hi"}, "Hi, you. Hi!", False, True),
        ("first_word:first_word_sent", {"first_word": ["hi"]}, "Hi you. me.", False, False),
        ("first_word:first_word_answer", {"first_word": "hi"}, "Hi you", True, True),
        ("first_word:first_word_answer", {"first_word": "hi"}, "Hi, you", False, True),
        ("last_word:last_word_sent", {"last_word": "hi"}, "Say hi. Hi!", True, True),
        ("last_word:last_word_sent", {"last_word": "it's"}, "That is it's.", False, True),
        ("last_word:last_word_answer", {"last_word": "hi"}, "you say **hi**.", True, True),
        ("last_word:last_word_answer", {"last_word": "hi"}, "hi you", False, False),
        ("punctuation:punctuation_dot", {}, "a! b", True, True),
        ("punctuation:punctuation_dot", {}, "3.14", False, False),
        ("punctuation:punctuation_exclamation", {}, "a. b", True, True),
        ("punctuation:punctuation_exclamation", {}, "a!", False, False),
        ("count:lowercase_counting", {"N": 2}, "THE cat IS here Now", True, True),
        ("count:lowercase_counting", {"N": 2}, "the cat is", False, False),
        ("count:count_increment_word", {"keyword1": "cat", "keyword2": "dog"}, "cat dog dogs", True, False),
        ("count:count_increment_word", {"keyword1": "cat", "keyword2": "dog"}, "category cat dog dog", False, True),
        ("letters:letter_counting", {"N": 3, "relation": "at least"}, "a1b2c", True, True),
        ("letters:letter_counting", {"N": 3, "relation": "less than"}, "a1b2c", False, False),
        (
            "letters:letter_counting2",
            {"letter": "A", "let_frequency": 2, "let_relation": "at least"},
            "a A",
            True,
            True,
        ),
        (
            "letters:letter_counting2",
            {"letter": "A", "let_frequency": 2, "let_relation": "less than"},
            "a A",
            False,
            False,
        ),
    ],
)
def test_both_readings(name, kwargs, text, reference, intent):
    assert iftrain(name, text, **kwargs) == reference
    assert iftrain(name, text, reading="intent", **kwargs) == intent


@pytest.mark.parametrize(
    ("name", "kwargs", "named"),
    [
        ("copy:copy", {}, "prompt_to_repeat"),
        ("copy:copying_multiple", COPY | {"N": 0}, "N"),
        ("keywords:word_once", {"keyword": " "}, "keyword"),
        ("first_word:first_word_sent", {"first_word": []}, "first_word"),
        ("keywords:keyword_specific_position", {"keyword": "a", "n": 0, "m": 1}, "n"),
        ("punctuation:punctuation_dot", {"N": 1}, "N"),
    ],
)
def test_malformed_rows_are_refused_whatever_the_response(name, kwargs, named):
    for text in ("", "x"):
        with pytest.raises(UserError, match=rf"{name}.*'{named}'"):
            iftrain(name, text, **kwargs)


def test_ids_of_ifeval_are_read_the_same():
    verdict = check_instructions(["punctuation:no_comma"], [{}], "a, b", suite="iftrain")
    assert verdict.parts == (False,)


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_no_response_raises(text):
    for name, kwargs, reading in every_check("iftrain"):
        iftrain(name, text, reading=reading, **kwargs)


@pytest.mark.parametrize(
    "text", ["kiwi " * 10_000, "x" * 50_000, "a-" * 20_000, "****** " * 5_000], ids=lambda text: text[:3]
)
def test_time_is_linear_in_the_response(text):
    for name, kwargs, reading in every_check("iftrain"):
        iftrain(name, text, reading=reading, **kwargs)
