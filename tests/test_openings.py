"""Opening classes: the shipped rules, the user's own, and the micro world's."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from vsr_jax import support
from vsr_jax.errors import UserError

SHIPPED = Path(support.__file__).with_name("openings.toml")

LABELLED = {
    "DAI": [
        "Answer: 42",
        "answer : 42",
        "ANSWER: \\boxed{3}",
        "Final answer: 7",
        "The final answer is 12.",
        "The answer is \\(x = 3\\).",
        "Therefore, the answer is 5.",
        "Thus the final answer is 5.",
        "So, the answer must be 10.",
        "Hence the answer: 1",
        "\\boxed{\\frac{1}{2}}",
        "$\\boxed{9}$",
        "\\[\\boxed{9}\\]",
        "\\fbox{9}",
        "The result is \\boxed{4}",
        "result : \\boxed{ 81 }",
        "42",
        "-3.5",
        "$12$",
        "1,250 dollars",
        "1.",
        "1. \n",
    ],
    "DRI": [
        "Step 1: Write the equation.",
        "To solve this problem, we",
        "To find the area",
        "To determine whether",
        "First, note",
        "First we compute :",
        "We need to find",
        "We are asked to count",
        "We have $x=2$",
        "I'll solve this in parts.",
        "I will solve",
        "I need to think",
        "Let's break this down",
        "Let’s denote the sides",
        "Let us compute step by step :",
        "Let me solve this step by step.\n\n",
        "Alright, we have",
        "Okay so the",
        "OK, here",
        "Right, so",
        "So we start with",
        "Now consider",
        "Given that x",
        "Suppose that",
        "Consider a triangle",
        "Define f",
        "Note that 3",
        "Recall the formula",
        "Observe the pattern",
    ],
    "Other": [
        "",
        "   ",
        "Here is a poem about rain.",
        "3 + 4 = 7, then",
        "1. Take the eggs\n2. Beat them",
        "1) **Boil** water",
        "2x + 3 = 7",
        "3rd place went to",
        "Totally agreed",
        "Sofia went home",
        "Nowhere to go",
        "Answers vary",
        "Rightly so",
        "First place in the race",
        "Let it be",
        "The answers are many",
        "The value of honesty",
    ],
}


@pytest.mark.parametrize(("label", "text"), [(label, text) for label, texts in LABELLED.items() for text in texts])
@pytest.mark.parametrize("lead", ["", " \n\t"])
def test_shipped_rules(label, text, lead):
    assert support.classify_opening(lead + text) == label


def test_direct_answer_is_tried_before_deliberation():
    assert support.classify_opening("So the answer is 4") == "DAI"
    assert support.classify_opening("So the number of answers is 4") == "DRI"


class TestConstraintSurface:
    keywords = ("river", "lantern", "C++")

    def test_two_keywords_open_a_short_response(self):
        text = "River lantern, lantern river."
        assert support.classify_opening(text, prompt_kind="instructions", keywords=self.keywords) == "CSI"

    def test_a_keyword_asked_for_twice_is_one(self):
        words = {"prompt_kind": "instructions", "keywords": ("river", "river")}
        assert support.classify_opening("The river runs.", **words) == "Other"

    def test_a_keyword_with_symbols_is_text_not_a_pattern(self):
        assert support.classify_opening("c++ river", prompt_kind="instructions", keywords=self.keywords) == "CSI"

    @pytest.mark.parametrize(
        "text",
        [
            "The river runs. The river runs.",  # one keyword, twice
            "River lantern " + "and so on " * 40,  # long response
            "A" + " word" * 20 + " river lantern",  # keywords too late
        ],
    )
    def test_what_falls_short(self, text):
        assert support.classify_opening(text, prompt_kind="instructions", keywords=self.keywords) == "Other"

    def test_placeholder(self):
        assert support.classify_opening("[Your Name], Answer: 4", prompt_kind="instructions") == "CSI"
        assert support.classify_opening("[1] 4 + 3", prompt_kind="instructions") == "Other"

    def test_exists_for_instruction_prompts_only(self):
        assert support.classify_opening("River lantern.", keywords=self.keywords) == "Other"
        assert support.classify_opening("[address] Elm street") == "Other"

    def test_keywords_of_a_row(self):
        kwargs = [{"keywords": ["a", "b"], "num_words": 4}, {"keyword": "c"}, {"keyword1": "d", "keyword2": "a"}]
        assert support.keywords_of(kwargs) == ("a", "b", "c", "d")
        assert support.keywords_of([{"keywords": None, "forbidden_words": ["x"], "keyword": None}, {}]) == ()


def test_unknown_prompt_kind_is_refused():
    with pytest.raises(ValueError, match="prompt_kind must be one of"):
        support.classify_opening("", prompt_kind="IF")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Step 1: add. Step 2: divide.", True),
        ("x = 3, so y = x + 1 = 4", True),
        ("2 + 2 = \\frac{8}{2} = 4", True),
        ("Let us solve: \\boxed{4}", False),
        ("x = 3", False),
        ("Step 1 is to give up", False),
        ("", False),
    ],
)
def test_chain_is_seen_wherever_it_stands(text, shown):
    assert support.has_chain(text) is shown


def test_a_long_response_is_classified_without_delay():
    import time

    text = "1" * 200_000 + "answer" * 50_000
    start = time.perf_counter()
    support.classify_opening(text)
    support.has_chain(text)
    assert time.perf_counter() - start < 1


def test_micro_rules_agree_with_how_the_corpus_was_written():
    micro = pytest.importorskip("vsr_jax.data.micro")
    expected = {"DRI": "DRI", "DAI": "DAI", "neutral": "Other", "rambling": "Other"}
    seen = {}
    for example in islice(micro.corpus(micro.DEFAULT, seed=0), 3000):
        kind = "instructions" if example.kind == "inst" else "math"
        opening = support.classify_opening(example.response, prompt_kind=kind, rules=support.MICRO_RULES)
        direct = "\\boxed" in example.response and "=" not in example.response
        label = expected.get(example.opening) or ("DAI" if direct else "Other")
        assert opening == label, example
        chained = example.response.count("=") > 1
        assert support.has_chain(example.response, rules=support.MICRO_RULES) is chained, example
        seen[example.opening, chained] = seen.get((example.opening, chained), 0) + 1
    assert seen["DRI", True] > 100
    assert seen["neutral", True] > 50
    assert seen["neutral", False] > 50


def test_micro_surface_opening():
    words = {"prompt_kind": "instructions", "rules": support.MICRO_RULES, "keywords": ["calm"]}
    assert support.classify_opening("Calm rivers .", **words) == "CSI"
    assert support.classify_opening("Answer : rivers are calm .", **words) == "DAI"
    assert support.classify_opening("They are very old and calm .", **words) == "Other"


class TestShares:
    def test_every_class_is_reported(self):
        shares = support.opening_shares(["DAI", "DAI", "DRI", "Other"])
        assert shares == {"CSI": 0.0, "DAI": 0.5, "DRI": 0.25, "Other": 0.25}

    def test_refuses(self):
        with pytest.raises(ValueError, match="at least one response"):
            support.opening_shares([])
        with pytest.raises(ValueError, match="unknown opening class 'dri'"):
            support.opening_shares(["dri"])

    def test_confusion_has_labels_in_rows(self):
        table = support.opening_confusion(["DAI", "DAI", "Other"], ["DAI", "DRI", "Other"])
        names = support.DEFAULT_RULES.names
        assert table.sum() == 3
        assert table[names.index("DAI"), names.index("DRI")] == 1
        assert np.trace(table) == 2
        with pytest.raises(ValueError, match="as many"):
            support.opening_confusion(["DAI"], [])


class TestUserRules:
    def load(self, tmp_path, text):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return support.load_rules(path)

    def test_own_classes_in_own_order(self, tmp_path):
        rules = self.load(
            tmp_path,
            """
            fallback = "Rest"
            skip = '[\\s*]+'
            chain = [{ pattern = 'because', at_least = 1 }]
            [[class]]
            name = "Greeting"
            prompt_kinds = ["math", "instructions"]
            patterns = ['hello\\b']
            """,
        )
        assert rules.names == ("Greeting", "Rest")
        assert support.classify_opening("** HELLO there", rules=rules) == "Greeting"
        assert support.classify_opening("Answer: 4", rules=rules) == "Rest"
        assert support.has_chain("so, because", rules=rules)

    def test_the_shipped_file_is_one(self):
        assert support.load_rules(SHIPPED).names == ("CSI", "DAI", "DRI", "Other")

    @pytest.mark.parametrize(
        ("old", "new", "complaint"),
        [
            ('fallback = "Other"', "", "fallback: must be given as a text"),
            ('fallback = "Other"', 'fallback = "DAI"', "class: class names must differ"),
            ('fallback = "Other"', 'fallbak = "Other"', "fallbak: unknown field"),
            ("prompt_kinds = [", "prompt_kind = [", r"class\[0\]\.prompt_kind: unknown field"),
            ('"instructions"]', '"IF"]', r"class\[0\]\.prompt_kinds: must list some of"),
            (r"'right\s*,'", "'right('", r"class\[2\]\.patterns\[\d+\]: is no valid regular expression"),
            (r"'right\s*,'", "3", r"class\[2\]\.patterns\[\d+\]: must be a regular expression"),
            ("at_least = 2, within", "at_least = 0, within", r"class\[0\]\.keywords\.at_least: must be a whole"),
            ("keywords = {", "keywords = 3 # {", r"class\[0\]\.keywords: must be a table"),
            ("[[chain]]\npattern", "[[chain]]\nregex", r"chain\[0\]\.regex: unknown field"),
            ("[[class]]", "[[class", "not a TOML file"),
        ],
    )
    def test_a_mistake_is_named_with_file_and_field(self, tmp_path, old, new, complaint):
        text = SHIPPED.read_text()
        assert old in text
        with pytest.raises(UserError, match=rf"mine\.toml: .*{complaint}") as caught:
            self.load(tmp_path, text.replace(old, new, 1))
        assert "\n" not in str(caught.value)

    def test_no_such_file(self, tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            support.load_rules(tmp_path / "none.toml")
