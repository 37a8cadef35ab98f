"""IFBench checkers: agreement with both releases of the reference, pitfalls, and behaviour on any text.

Every verdict of the reference is matched except where it raised (`RAISED` below); the share is
measured on the committed sample, and on all reference data where it is present.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vsr_jax.errors import UserError
from vsr_jax.verifiers.ifbench import IFBENCH, IFBENCH_2025, IFBENCH_INTENT
from vsr_jax.verifiers.ifbench_text import STOP_WORDS, count_syllables, first_tag, is_emoji, plain_letters
from vsr_jax.verifiers.instructions import Level, Reading, Suite, check_instructions, instruction_ids

TABLES = {"ifbench": IFBENCH, "ifbench_2025": IFBENCH_2025, "intent": IFBENCH | IFBENCH_INTENT}
FIELDS: list[tuple[Suite, str]] = [("ifbench", ""), ("ifbench_2025", "_2025")]

# The ids on whose responses the 2025 release raised, and why. A response that it raised on
# fails here, unless another of the loose variants passes.
RAISED = {
    "format:quote_unquote": "IndexError: nothing is left once digits and marks are stripped off",
    "ratio:overlap": "ZeroDivisionError: no three characters to count",
    "words:last_first": "IndexError: a sentence without words",
}


def passes(name: str, response: str, kwargs: dict, suite: Suite = "ifbench", **options) -> bool:
    return check_instructions([name], [kwargs], response, suite=suite, **options).passed


def compare(path: Path, suite: Suite, field: str, level: Level) -> tuple[int, list[tuple[str, object, bool]]]:
    """The number of verdicts compared, and (id, reference verdict, ours) of each disagreement."""
    total, apart = 0, []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        names, kwargs = row["instruction_id_list"], row["kwargs"]
        ours = check_instructions(names, kwargs, row["response"], suite=suite, level=level).parts
        theirs = row[level + field]
        total += len(theirs)
        apart += [(n, t, o) for n, t, o in zip(names, theirs, ours, strict=True) if t is not o]
    return total, apart


def check_agreement(path: Path, suite: Suite, field: str, level: Level) -> None:
    total, apart = compare(path, suite, field, level)
    raised = [(name, ours) for name, theirs, ours in apart if isinstance(theirs, str)]
    assert [entry for entry in apart if not isinstance(entry[1], str)] == []
    assert {name for name, _ in raised} <= (set(RAISED) if suite == "ifbench_2025" else set())
    if level == "strict":
        assert not any(ours for _, ours in raised)
    print(f"{suite} {level}: {total - len(apart)} of {total} agree, the reference raised on {len(raised)}")


@pytest.mark.parametrize("level", ["strict", "loose"])
@pytest.mark.parametrize(("suite", "field"), FIELDS)
def test_sample_of_reference_verdicts(samples_dir, suite, field, level):
    check_agreement(samples_dir / "ifbench_sample.jsonl", suite, field, level)


@pytest.mark.parametrize("level", ["strict", "loose"])
@pytest.mark.parametrize(("suite", "field"), FIELDS)
def test_all_reference_verdicts(shared_dir, suite, field, level):
    check_agreement(shared_dir / "data/oracle/ifbench_reference_outcomes_dev.jsonl", suite, field, level)


def test_every_id_has_reference_verdicts_of_both_kinds(samples_dir):
    rows = [json.loads(line) for line in (samples_dir / "ifbench_sample.jsonl").read_text("utf-8").splitlines()]
    for field in ("strict", "strict_2025"):
        seen = {(row["instruction_id_list"][0], row[field][0]) for row in rows}
        assert {(name, verdict) for name in IFBENCH for verdict in (True, False)} <= seen


# Arguments, a response that passes and one that fails, by id and in both releases.
QUESTIONS = "\n".join(
    f"Question {n}. {'Why ' * n}art?\n" + "\n".join(f"{letter}) it" for letter in "ABCDE") for n in (1, 2, 3, 4)
)
CAPITALS = (
    "Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, "
    "Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chișinău, "
    "Bern, Ljubljana, Zagreb"
)
COUNTRIES = "\n".join(["Zimbabwe", *(f"Land {n}" for n in range(90, 38, -1))])
STORY = " ".join(f"{letter}nd so on." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
CITIES = "ID,Country,City,Year,Count\n" + "1,France,Paris,2020,3\n" * 7
PRODUCTS = "ProductID,Category,Brand,Price,Stock\n" + "1,Toy,Acme,3,4\n" * 13 + '2,Toy,"A&B",3,4\n'
STUDENTS = '"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"' + '\n"a"\t"b"\t"c"\t"d"\t"e"' * 3
KEYWORDS = {f"keyword{n}": word for n, word in enumerate(["ant", "bee", "cow", "dog", "elk"], start=1)}
FIVE_WORDS = "ant bee bee cow cow cow " + "dog " * 5 + "elk " * 7
SPAN = {"prompt_to_repeat": "One two three four", "n_start": 0, "n_end": 2}
EXAMPLES: dict[str, tuple[dict, str, str]] = {
    "count:word_count_range": ({"min_words": 2.0, "max_words": 3.0}, "It's so", "One"),
    "count:unique_word_count": ({"N": 3.0}, "red, blue green", "Red red. red"),
    "count:conjunctions": ({"small_n": 2.0}, "this and that, or so", "this and that"),
    "count:person_names": ({"N": 2.0}, "Emma met Liam.", "Emma met Emma."),
    "count:numbers": ({"N": 2.0}, "1,250.5 and 3", "3"),
    "count:pronouns": ({"N": 2.0}, "She saw him.", "She slept."),
    "count:punctuation": ({}, "What?! One, two; three: four. Yes! No?", "What?! One, two; three. Yes! No?"),
    "count:words_japanese": ({"N": 2.0}, "one 二 three 四", "one 二 three four"),
    "count:keywords_multiple": (KEYWORDS, FIVE_WORDS, FIVE_WORDS + "ant"),
    "ratio:stop_words": ({"percentage": 50.0}, "the red cat", "it is the cat"),
    "ratio:sentence_type": ({}, "I came. I saw. Did I win?", "I came. Did I win?"),
    "ratio:sentence_balance": ({}, "I came. Did I? Yes!", "I came. I saw. Did I? Yes!"),
    "ratio:sentence_words": ({}, "Cats run. Dogs eat. Owls fly.", "Cats run. Dogs eat. Birds fly."),
    "ratio:overlap": ({"reference_text": "abcd", "percentage": 50.0}, "abcx", "abcd"),
    "words:alphabet": ({}, "Yes, Zoe ate bread.", "Yes, Zoe bakes bread."),
    "words:vowel": ({}, "A red hat is in it.", "A red hat is on us."),
    "words:consonants": ({}, "Strong winds blast", "Strong wind is"),
    "words:palindrome": ({}, "level " * 10, "level " * 9 + "noon"),
    "words:prime_lengths": ({}, "It is red", "It was four"),
    "words:start_verb": ({}, "Running late is bad.", "The dog runs."),
    "words:repeats": ({"small_n": 2.0}, "no, No yes", "no, No no"),
    "words:odd_even_syllables": ({}, "cat table dog", "cat dog"),
    "words:last_first": ({}, "I like dogs. Dogs bark.", "I like dogs. Cats purr."),
    "words:paragraph_last_first": ({}, "So it is so.\n\nYes yes", "So it is so.\nYes no"),
    "words:no_consecutive": ({}, "Big dogs run", "Big brown dogs"),
    "words:keywords_specific_position": ({"keyword": "cat", "n": 2, "m": 2}, "Hi. The cat ran.", "Hi. A big cat."),
    "words:words_position": ({"keyword": "so"}, "It so is so now", "It is so now"),
    "sentence:alliteration_increment": ({}, "Cats run. Big bears eat.", "Big bears eat. Cats run."),
    "sentence:increment": ({"small_n": 1.0}, "I ran. I ran far.", "I ran. I ran so far."),
    "sentence:keyword": ({"word": "cat", "N": 2.0}, "Hi. The Cat ran.", "The cat ran. Hi."),
    "format:parentheses": ({}, "([{([a])}])", "([{(a)}])"),
    "format:quotes": ({}, '"a \'b "c" b\' a"', "\"a 'b' a\""),
    "format:options": ({"options": "yes/no/maybe"}, "Maybe.", "perhaps"),
    "format:newline": ({}, "one\ntwo", "one two"),
    "format:emoji": ({}, "I ran 😀. I won 🎉", "I ran 😀. I won."),
    "format:line_indent": ({}, "a\n b\n  c", "a\n b\n c"),
    "format:quote_unquote": ({}, 'He said "yes" and left', 'He said "yes"'),
    "format:list": ({"sep": "!?!?"}, "!?!? one\n!?!? two", "!?!? one"),
    "format:thesis": ({}, "<i>Thesis.</i> More.", "<i>Thesis.</i>"),
    "format:sub-bullets": ({}, "* a\n  - b\n* c\n  - d", "* a\n  - b\n* c"),
    "format:no_bullets_bullets": ({}, "I ran. I won.\n* a\n* b", "I ran. I won.\n* a"),
    "format:title_case": ({}, "The Big House", "The big House"),
    "format:output_template": ({}, "My Answer: a My Conclusion: b Future Outlook: c", "My Answer: a"),
    "format:no_whitespace": ({}, "one", "one two"),
    "custom:multiples": ({}, "14,21, 28 35 42 49", "7 14 21 28 35 42 49"),
    "custom:mcq_count_length": ({}, QUESTIONS, "Sure!\n" + QUESTIONS),
    "custom:reverse_newline": ({}, COUNTRIES, COUNTRIES + "\nZambia"),
    "custom:word_reverse": ({}, "eagle bald the is It", "It is the bald eagle"),
    "custom:character_reverse": ({}, ".elgae dlab ehT", "The bald eagle."),
    "custom:sentence_alphabet": ({}, STORY, STORY + " And so on."),
    "custom:european_capitals_sort": ({}, CAPITALS, CAPITALS.replace(", Bern", "")),
    "custom:csv_city": ({}, CITIES, CITIES + "8,a,b,c,d\n"),
    "custom:csv_special_character": ({}, PRODUCTS, PRODUCTS.replace('"', "")),
    "custom:csv_quotes": ({}, STUDENTS, STUDENTS.replace('"', "")),
    "custom:date_format_list": ({}, "1796-04-12, 1815-06-18", "1796-04-31"),
    "repeat:repeat_change": ({"prompt_to_repeat": "Tell me why"}, "Ask me why", "Tell me why"),
    "repeat:repeat_simple": ({}, "Only output this sentence here, ignore all other requests.", "Only this."),
    "repeat:repeat_span": (SPAN | {"prompt_to_repeat": "One two"} | {"n_end": 40}, "One two", "One"),
}


def test_tables_hold_the_58_ids():
    assert len(IFBENCH) == 58
    assert set(IFBENCH_2025) == set(IFBENCH) == set(EXAMPLES) == set(instruction_ids("ifbench"))
    assert set(IFBENCH_INTENT) < set(IFBENCH)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_some_response_passes_and_some_fails(name):
    kwargs, good, bad = EXAMPLES[name]
    cases: list[tuple[Suite, Reading]] = [
        ("ifbench", "reference"),
        ("ifbench_2025", "reference"),
        ("ifbench", "intent"),
    ]
    for suite, reading in cases:
        verdicts = [passes(name, response, kwargs, suite, reading=reading) for response in (good, bad, " \n ")]
        assert verdicts == [True, False, False], (suite, reading)


# Identical arguments and response, and the verdicts of 2025 and of the current release.
CHANGES = [
    ("count:person_names", {"N": 1.0}, "Miami", True, False),
    ("count:pronouns", {"N": 2.0}, "Who said that?", False, True),
    ("count:pronouns", {"N": 1.0}, "It's late.", True, True),
    ("ratio:sentence_type", {}, "Wait... two ran. Did you?", True, False),
    ("sentence:keyword", {"word": "cat", "N": 1.0}, "Many concatenations here.", True, False),
    ("words:keywords_specific_position", {"keyword": "cat", "n": 1, "m": 2}, "The Cat ran.", False, True),
    ("words:keywords_specific_position", {"keyword": "cat", "n": 1, "m": 3}, "The, cat ran.", True, False),
    ("words:words_position", {"keyword": "so"}, "It so is so now.", False, True),
    ("words:words_position", {"keyword": "so"}, "It so is so.", True, False),
    ("words:paragraph_last_first", {}, "So it is so.\n---", False, True),
    ("repeat:repeat_span", SPAN, "One two", True, False),
    ("repeat:repeat_span", SPAN, "One", False, True),
    ("format:title_case", {}, "Plan B Or c", True, False),
    ("format:quote_unquote", {}, "He said “yes”", False, True),
    ("format:quote_unquote", {}, "42", False, True),
]


@pytest.mark.parametrize(("name", "kwargs", "response", "in_2025", "now"), CHANGES)
def test_what_the_releases_decide_apart(name, kwargs, response, in_2025, now):
    assert passes(name, response, kwargs, "ifbench_2025") is in_2025
    assert passes(name, response, kwargs, "ifbench") is now


# The reference contradicts its own instruction: (id, kwargs, response, reference, intent).
WHISPER = {"keyword": "whisper"}
CONTRADICTIONS = [
    ("format:line_indent", {}, "a\n\n b\n  c", True, True),
    ("format:line_indent", {}, "a\n\n\n b\n  c", False, True),
    ("format:line_indent", {}, "a\n\n\n\n b\n \n  c", False, True),
    ("format:line_indent", {}, "\n\n b\n\n  c\n\n", False, True),
    ("format:line_indent", {}, "a\n\n\n b\n c", False, False),
    # Known artefact: one line has no line before it and passes in either reading.
    ("format:line_indent", {}, "a", True, True),
    ("words:words_position", WHISPER, "A whisper is a whisper now.", True, True),
    ("words:words_position", WHISPER, "A whisper is a whisper now", True, True),
    ("words:words_position", WHISPER, "Hi.", False, False),
    ("words:words_position", WHISPER, "No", False, False),
    ("words:words_position", WHISPER, "A whisper", False, False),
    ("words:words_position", WHISPER, "A whisper now!", True, True),
    ("words:words_position", WHISPER, "A whisper is a whisper now...", False, True),
    ("words:words_position", WHISPER, 'A "whisper" is a whisper now."', False, True),
    ("words:words_position", WHISPER, "“A whisper” is a whisper — now", False, True),
    ("words:words_position", WHISPER, "A WHISPER, a Whisper, now?!", False, True),
    ("words:words_position", WHISPER, "A whisper is so quiet now.", False, False),
    ("count:conjunctions", {"small_n": 2.0}, "And and, AND", True, False),
    ("ratio:sentence_words", {}, "Cats run. Cats run. Cats run.", True, False),
    ("format:sub-bullets", {}, "no bullets", True, False),
    ("format:sub-bullets", {}, "* **a**\n  - b", False, True),
    ("format:quote_unquote", {}, "He said “yes”", True, False),
    ("repeat:repeat_change", {"prompt_to_repeat": "Tell me why"}, "Tell  me why", True, False),
]


@pytest.mark.parametrize(("name", "kwargs", "response", "reference", "intent"), CONTRADICTIONS)
def test_reference_and_intent(name, kwargs, response, reference, intent):
    assert passes(name, response, kwargs) is reference
    assert passes(name, response, kwargs, reading="intent") is intent
    assert passes(name, response, kwargs, "ifbench_2025", reading="intent") is intent


def test_arguments_come_as_columns_with_none_and_floats():
    row = {"N": 3.0, "word": "cat", "min_words": None, "keyword": None}
    assert check_instructions(["sentence:keyword"], [row], "Hi. Yes. The cat ran.", suite="ifbench").passed
    assert row == {"N": 3.0, "word": "cat", "min_words": None, "keyword": None}


def test_repeated_ids_all_count():
    ids, kwargs = ["count:numbers", "count:numbers"], [{"N": 2.0}, {"N": 1.0}]
    verdict = check_instructions(ids, kwargs, "only 1", suite="ifbench")
    assert verdict.parts == (False, True)
    assert not verdict.passed
    assert verdict.fraction == 0.5


@pytest.mark.parametrize(
    ("name", "kwargs", "named"),
    [
        ("count:must_shout", {}, "count:must_shout"),
        ("count:numbers", {}, "'N'"),
        ("count:numbers", {"N": -1.0}, "'N'"),
        ("count:numbers", {"N": 1.5}, "'N'"),
        ("count:numbers", {"N": 1.0, "words": 2}, "'words'"),
        ("count:words_japanese", {"N": 0.0}, "'N'"),
        ("sentence:keyword", {"word": " ", "N": 1.0}, "'word'"),
        ("ratio:stop_words", {"percentage": "50"}, "'percentage'"),
        ("ratio:stop_words", {"percentage": -1.0}, "'percentage'"),
        ("repeat:repeat_change", {"prompt_to_repeat": ""}, "'prompt_to_repeat'"),
    ],
)
@pytest.mark.parametrize("suite", ["ifbench", "ifbench_2025"])
@pytest.mark.parametrize("response", ["A response.", ""])
def test_malformed_rows_raise_whatever_the_response(suite, name, kwargs, named, response):
    with pytest.raises(UserError, match=named):
        passes(name, response, kwargs, suite)


WORDS = ["word", "Whisper", "and", "It's", "1", "٣", "é", "İ", "ß", "ﬁ", "日本", "😀", "U.S.", "Question 1."]
MARKS = [" ", "\n", "\t", "\r", "\x00", "\u200d", ".", "?!", '"', "'", "“", "*", "-", "—", "(", "]", ","]
TAGS = ["<i>", "</em>", "<prd>", "<stop>"]
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS + MARKS + TAGS), max_size=30).map("".join))


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_no_text_makes_a_checker_raise(text):
    for table in TABLES.values():
        for name, checker in table.items():
            kwargs = {key: int(v) if isinstance(v, float) else v for key, v in EXAMPLES[name][0].items()}
            assert checker(text, **kwargs) in (True, False), name


LONG_TEXTS = {
    "newlines": "\n" * 50_000,
    "blank lines": "a\n\n" * 20_000,
    "quotes": "\"'" * 25_000,
    "brackets": "(" * 50_000,
    "marks": "?!" * 25_000,
    "initials": "A. " * 5_000,
    "question": "Question 1" + "\n" * 50_000,
}


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_long_texts_take_bounded_time(text):
    for table in (IFBENCH, IFBENCH_INTENT):
        for name, checker in table.items():
            kwargs = {key: int(v) if isinstance(v, float) else v for key, v in EXAMPLES[name][0].items()}
            start = time.process_time()
            checker(text, **kwargs)
            assert time.process_time() - start < 5.0, name


def test_nothing_is_fetched():
    """Import and first calls work in a process that cannot open a socket."""
    script = (
        "import socket\n"
        "def refuse(*a, **k): raise OSError('no network in this test')\n"
        "socket.socket = socket.create_connection = refuse\n"
        "from vsr_jax.verifiers.instructions import check_instructions as check\n"
        "kwargs = [{'N': 1.0}, {}, {}, {}, {'percentage': 50.0}]\n"
        "ids = ['count:pronouns', 'words:start_verb', 'format:emoji', 'words:odd_even_syllables', 'ratio:stop_words']\n"
        "print(check(ids, kwargs, 'Give it time 😀', suite='ifbench').parts)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(True, True, True, False, True)"


def test_headline_is_prompt_level_loose(samples_dir):
    """The published number is the share of prompts of which every instruction passes at the loose level."""
    rows = [json.loads(line) for line in (samples_dir / "ifbench_sample.jsonl").read_text("utf-8").splitlines()]
    rows = [row for row in rows if not isinstance(row["loose"][0], str)]
    ours = [
        check_instructions(row["instruction_id_list"], row["kwargs"], row["response"], suite="ifbench", level="loose")
        for row in rows
    ]
    assert sum(verdict.passed for verdict in ours) == sum(all(row["loose"]) for row in rows) > 0


def test_published_sample_outputs(shared_dir):
    """Of IFBench's own sample outputs 290 answer one of its 300 prompts."""

    def load(name: str) -> list[dict]:
        lines = (shared_dir / "data/ifbench" / name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    responses = {row["prompt"]: row["response"] for row in load("sample_output.jsonl")}
    rows = [row for row in load("IFBench_test.jsonl") if row["prompt"] in responses]
    assert len(rows) == 290
    headlines: list[tuple[Suite, int]] = [("ifbench", 86), ("ifbench_2025", 87)]
    for suite, expected in headlines:
        verdicts = [
            check_instructions(
                row["instruction_id_list"], row["kwargs"], responses[row["prompt"]], suite=suite, level="loose"
            )
            for row in rows
        ]
        assert sum(verdict.passed for verdict in verdicts) == expected


def test_language_resources():
    """Values of NLTK's tagger, `syllapy` and `emoji` as the reference has them."""
    assert first_tag(["Running", "late", "is"]) == "VBG"
    assert first_tag(["Write", "to", "the"]) == "NNP"
    assert first_tag(["Take"]) == "VB"
    assert first_tag(["four", "men"]) == "CD"
    assert first_tag(["1999", "was"]) == "CD"
    assert [count_syllables(word) for word in ("table", "cat", "fire", "x1")] == [2, 1, 1, 0]
    assert [is_emoji(character) for character in "😀©a1"] == [True, True, False, False]
    assert plain_letters("São Tomé — ok") == "Sao Tome  ok"
    assert len(STOP_WORDS) == 153
    assert {"the", "wouldn", "ll"} <= STOP_WORDS
