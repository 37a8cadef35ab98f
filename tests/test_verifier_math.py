"""The math verifier on every kind of known mistake, on properties, and on inputs made to hurt."""

import json
import re
import time
import tracemalloc
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from math_cases import BOXED, RESPONSES

from vsr_jax.errors import UserError
from vsr_jax.verifiers import check_math
from vsr_jax.verifiers.math import answers_equal
from vsr_jax.verifiers.math_extract import last_box

PAIRS = [
    pytest.param(gold, answer, right, id=f"{kind}: {gold[:30]} / {answer[:30]}".encode("ascii", "replace").decode())
    for kind, rows in BOXED.items()
    for gold, rights, wrongs in rows
    for right, answers in ((True, rights), (False, wrongs))
    for answer in answers
]


@pytest.mark.parametrize(("gold", "answer", "right"), PAIRS)
def test_boxed_answer(gold, answer, right):
    verdict = check_math(gold, rf"Step 1 gives 7. So $\boxed{{{answer}}}$.")
    assert verdict.status == ("correct" if right else "wrong")
    assert (verdict.passed, verdict.parts, verdict.fraction) == (right, (right,), float(right))


@pytest.mark.parametrize(
    ("kind", "gold", "response", "status"), [(k, *row) for k, rows in RESPONSES.items() for row in rows]
)
def test_response(kind, gold, response, status):
    assert check_math(gold, response).status == status


def test_extraction_is_byte_for_byte():
    content = r" \sqrt{\frac{5}{12}} + \left\{ x \right\}_{1} "
    assert last_box(rf"a {{b}} \boxed{{{content}}} c}} d {{").answer == content
    assert check_math("1", rf"\boxed{{{content}}}").detail == content


# Options.


@pytest.mark.parametrize(
    ("response", "with_splitting", "without"),
    [
        (r"<think>maybe \boxed{6}", "no_answer", "correct"),
        (r"<think>\boxed{5}</think> So \boxed{6}", "correct", "correct"),
        (r"<think>\boxed{6}</think> I give up.", "no_answer", "correct"),
        (r"\boxed{6}</think> So \boxed{7}", "wrong", "wrong"),
        (r"<think>a</think> \boxed{6} <think>hm, \boxed{7}", "no_answer", "wrong"),
        (r"<think>a</think> \boxed{5} <think>b</think> \boxed{6}", "correct", "correct"),
        (r"\boxed{6}", "correct", "correct"),
    ],
)
def test_think_splitting(response, with_splitting, without):
    assert check_math("6", response, think=True).status == with_splitting
    assert check_math("6", response).status == without


def test_where_the_answer_is_looked_for():
    both = "\\boxed{5}\nAnswer: 7"
    assert check_math("5", both).passed
    assert check_math("5", both, extract="boxed").passed
    assert check_math("7", both, extract="answer_line").passed
    assert check_math("7", "Answer: 7", extract="boxed").status == "no_answer"
    assert check_math("7", r"so \boxed{7}", extract="answer_line").status == "no_answer"


@pytest.mark.parametrize("gold", ["", "  ", None, [], True, r"\,", "$$"])
def test_a_malformed_gold_is_raised(gold):
    with pytest.raises(UserError, match="field `answer`"):
        check_math(gold, r"\boxed{1}")


def test_numbers_as_gold():
    assert check_math(70.0, r"\boxed{070}").passed  # type: ignore[arg-type]
    assert check_math(7, r"\boxed{7}").passed  # type: ignore[arg-type]


def test_unknown_options_are_raised():
    with pytest.raises(UserError, match="extract='anywhere'"):
        check_math("1", "1", extract="anywhere")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="policy='kind'"):
        check_math("1", "1", policy="kind")  # type: ignore[arg-type]


def test_a_response_that_is_no_text_is_an_error():
    assert check_math("1", None).status == "error"  # type: ignore[arg-type]


# The rule of the DAPO recipe.


@pytest.mark.parametrize(
    ("gold", "response", "status"),
    [
        ("42", "Answer: 42", "correct"),
        ("42", "answer :\n 42\nmore", "correct"),
        ("42", "Answer: 41\nAnswer: 42", "correct"),
        ("42", "Answer: 42" + " " * 300, "no_answer"),  # outside the last 300 characters
        ("42", r"so \boxed{42}", "no_answer"),
        ("42", r"Answer: $\boxed{42}$", "correct"),
        ("42", "Answer: x = 42", "correct"),
        ("42", "Answer: $42$ apples", "correct"),
        ("1250", "Answer: 1,250", "correct"),
        ("10", r"Answer: 10\text{ cm}", "correct"),
        (r"\frac{1}{2}", r"Answer: \frac12", "correct"),
        (r"\sqrt{3}", r"Answer: \sqrt3", "correct"),
        ("0.5", "Answer: 1/2", "wrong"),  # no values
        ("073", "Answer: 73", "wrong"),
        ("42", "Answer: 42.", "wrong"),
    ],
)
def test_dapo_policy(gold, response, status):
    assert check_math(gold, response, policy="dapo").status == status


def test_dapo_strict_box():
    assert check_math("42", r"\boxed{42}", policy="dapo", extract="boxed").passed
    assert not check_math("42", r"\boxed{42.0}", policy="dapo", extract="boxed").passed
    assert check_math("42", r"\boxed{42}" + " " * 100, policy="dapo", extract="boxed").status == "no_answer"
    assert check_math("42", r"\boxed{41} \boxed{42", policy="dapo", extract="boxed").status == "no_answer"


# Properties.


def sample_golds(samples_dir):
    return json.loads((samples_dir / "math_golds.json").read_text())


def check_golds(golds):
    for gold in golds:
        assert answers_equal(gold, gold), gold
        assert check_math(gold, rf"Thus $\boxed{{{gold}}}$.").passed, gold
        assert check_math(gold, f"Answer: ${gold}$", extract="answer_line").passed, gold


def test_sample_golds_equal_themselves(samples_dir):
    check_golds(sample_golds(samples_dir))


def test_all_golds_equal_themselves(shared_dir):
    """7,500 training and 500 test answers; the two empty ones are malformed rows."""
    golds, empty = [], []
    for name in ("math_train_7500.jsonl", "math500_test.jsonl"):
        with (shared_dir / "data/math" / name).open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                (golds if row["answer"] else empty).append(row)
    assert len(golds) == 7998
    assert [row["unique_id"] for row in empty] == ["train/number_theory/7115.json", "train/number_theory/7117.json"]
    for row in empty:
        with pytest.raises(UserError, match="field `answer`"):
            check_math(row["answer"], r"\boxed{0}")
    check_golds({row["answer"] for row in golds})


def test_different_golds_differ(samples_dir):
    """No two numbers of different value among the sample golds are taken for each other."""
    golds = [gold for gold in sample_golds(samples_dir) if re.fullmatch(r"-?[0-9.]*[0-9]|-?\\frac\{\d+\}\{\d+\}", gold)]
    values = [Fraction(re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", gold)) for gold in golds]
    assert len(golds) > 40
    for gold, value in zip(golds, values, strict=True):
        for other, other_value in zip(golds, values, strict=True):
            assert answers_equal(gold, other) == (value == other_value), (gold, other)


rationals = st.fractions(max_denominator=999).filter(lambda value: abs(value) < 10**9)


def spellings(value: Fraction) -> list[str]:
    n, d = value.numerator, value.denominator
    found = [
        rf"\frac{{{n}}}{{{d}}}",
        rf"\dfrac{{{-n}}}{{{-d}}}",
        f"{n}/{d}",
        rf"\frac{{{3 * n}}}{{{3 * d}}}",
        f"${n}/{d}$",
    ]
    found += [
        rf"x = {n}/{d}",
        rf"\text{{{n}/{d}}}",
        rf"{n}/{d}\text{{ cm}}",
        rf"{n}\cdot {d}^{{-1}}",
        rf"\sqrt{{{n * n}/{d * d}}}",
    ]
    if value < 0:
        found.pop()
    if n > d > 1:
        found.append(rf"{n // d}\frac{{{n % d}}}{{{d}}}")
    if d == 1:
        found += [f"{n:,}", f"{n}.0", f"{n}."]
    return found


@given(rationals, rationals)
@settings(max_examples=60, deadline=None)
def test_rationals_match_exactly_by_value(value, other):
    gold = f"{value.numerator}/{value.denominator}"
    for spelling in spellings(value):
        assert answers_equal(gold, spelling), spelling
    for spelling in spellings(other):
        assert answers_equal(gold, spelling) == (value == other), spelling


PIECES = [
    *"\\{}()[]$|^_!%,.;:=<>+-*/'&~ \n0123456789abcxyzie−²½√∞٣𝟙\x00", r"\{", r"\}", "\\\\", r"\frac", r"\sqrt",
    r"\pm", r"\pi", r"\text{", r"\boxed{", r"\left(", r"\right)", r"\sin", r"\log", r"\infty", r"\cup", r"\in", r"\le",
    r"\circ", r"\begin{matrix}", r"\end{matrix}", "Answer:", "and", "or", "cm",
]  # fmt: skip
answers = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@given(answers, answers)
@settings(max_examples=400, deadline=None)
def test_no_response_raises(gold, answer):
    check_math("3", answer)
    check_math(r"x^2 + \frac{1}{2}", rf"\boxed{{{answer}}}")
    try:
        verdict = check_math(gold, rf"\boxed{{{gold}}}")
    except UserError:
        return  # an empty gold
    if last_box(rf"\boxed{{{gold}}}").answer == gold:
        assert verdict.status in ("correct", "no_answer"), gold


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_text_raises(text):
    check_math(r"\frac{1}{2}", rf"\boxed{{{text}}}")
    check_math("3", text)


# Inputs made to hurt.

HURTFUL = [
    "9^{9^{9}}", "10^{10^{10}}", "9^{9^{9^{9}}}", "100000000!", "3000!", "((((2999)!)!)!)!", "2^{2^{2^{2^{2^2}}}}",
    "{" * 10_000 + "6" + "}" * 10_000, "{" * 1_900 + "6" + "}" * 1_900, "(" * 900 + "6" + ")" * 900, "{" * 10_000,
    "}" * 3_900, "6" * 100_000, "6" * 3_999, "1+" * 1_900 + "1", "1/" * 1_900 + "1", "x^{" * 900 + "2" + "}" * 900,
    r"\frac{1}{" * 400 + "2" + "}" * 400, r"\sqrt{2+" * 25 + "2" + "}" * 25, r"\sqrt{" * 400 + "2" + "}" * 400,
    "1e999999999", "1e-999999999", "(x+y+z+w)^{200}", r"(\sqrt2+\sqrt3+\sqrt5+\sqrt7)^{90}", r"(1+\pi+e)^{100}",
    r"\sin(10^{1000})", r"e^{e^{e^{e^{10}}}}", "i^{i^{i}}", r"\pm1" * 20, "1," * 1_000, r"\{" + "1," * 900 + r"2\}",
    r"\cup".join(["(1,2)"] * 100), "x<" * 100 + "1", "|" * 999, r"\begin{matrix}" * 100, r"\sqrt{" + "9" * 3_000 + "}",
    r"\sqrt{123456789012345678901234567890123456789}", "2^{1/1000}", r"2^{\frac{1}{10^{50}}}", "x" + "'" * 1_000,
    "5" + "%" * 1_000, "5" + "!" * 1_000, "\\" * 3_999, r"\text{" * 900, " " * 50_000 + "6", "1_{2_{3}}", "6_6",
    "x" + r"+\sin(x)" * 150, "1.0000000001^{10000000000}", "f(" * 200 + "x" + ")" * 200, "0^0", "1/0", "0^{-1}",
    "²" * 3_000, "½" * 3_000, "٣" * 3_000, "\\boxed{" * 500, "a" * 100_000, "\ud800", "\\frac" * 800,
    "(" + "1," * 480 + "2)", r"\binom{3000}{1500}", "x^{x^x}", "0.5^{100000}", "12345678901234567890^{1/7}",
]  # fmt: skip
HURT_GOLDS = ["3", r"\sqrt{1+\sqrt{2}}", "x+1", r"(1,2)\cup(3,4)", "1,2", r"\sin x", r"\text{east}", r"\pm 3"]


def test_hurtful_answers_are_bounded_in_time():
    """Each within half a second of processor time, in this process."""
    check_math(r"\tan 15^\circ", r"\boxed{2-\sqrt3}")  # loads everything
    for gold in HURT_GOLDS:
        for answer in HURTFUL:
            start = time.process_time()
            verdict = check_math(gold, rf"\boxed{{{answer}}}")
            assert time.process_time() - start < 0.5, (gold, answer[:50])
            assert verdict.status in ("wrong", "no_answer", "correct")
            assert not verdict.passed or answer.strip("٣6{}() ") == "", (gold, answer[:50])


def test_hurtful_answers_keep_memory_flat():
    tracemalloc.start()
    for answer in HURTFUL:
        check_math(r"\sqrt{1+\sqrt{2}}", rf"\boxed{{{answer}}}")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_hurtful_golds_are_bounded_and_equal_themselves():
    for gold in HURTFUL:
        start = time.process_time()
        same = check_math(gold, f"Answer: {gold}", extract="answer_line")
        assert time.process_time() - start < 0.5, gold[:50]
        if len(gold) < 100 and "boxed" not in gold and "\\\\" not in gold:
            assert same.passed, gold


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{" * 30_000 + r"\boxed{6}",
        r"\boxed{" * 30_000 + "6" + "}" * 30_000,
        r"\boxed " * 30_000,
        r"\boxed 5 \boxed{" * 10_000,
        r"\boxed " + "{" * 100_000,
        "boxed" + "\\" * 200_000,
        "answer" + " " * 200_000,
        "Answer is" + " " * 200_000 + ":" + " " * 200_000,
        "answer: " * 40_000,
        "Answer: " + "<a" * 100_000,
        "Answer: " + "0" * 200_000 + "x",
        "$" * 200_000 + r"\boxed{$" + "$" * 200_000,
        "<think>" * 50_000 + "</think>" * 50_000,
    ],
)
def test_long_responses_cost_their_length(response):
    start = time.process_time()
    for extract in ("auto", "answer_line"):
        assert check_math("8", response, extract=extract, think=True).status in ("no_answer", "wrong")
    assert time.process_time() - start < 1.0


def test_in_a_deep_recursion():
    def descend(levels):
        if levels:
            return descend(levels - 1)
        return check_math("6", rf"\boxed{{{'(' * 25 + '6' + ')' * 25}}}").status

    assert {descend(levels) for levels in range(0, 900, 50)} <= {"correct", "wrong"}


def test_wrong_answers_of_the_micro_world_are_cheap():
    gold, response = "<1> 5 <2> 6", r"[1] 4 (1) + 3 = 7 <1> 7 . The final answer is \boxed{ <1> 7 <2> 6 } ."
    assert check_math(gold, response).status == "wrong"
    assert check_math(gold, response.replace("7 <2>", "5 <2>")).status == "correct"
    start = time.process_time()
    for _ in range(500):
        check_math(gold, response)
    assert (time.process_time() - start) / 500 < 300e-6  # 50 microseconds on a free core


def test_importing_the_package_is_light():
    import subprocess
    import sys

    code = (
        "import sys, vsr_jax.verifiers; print(any(m in sys.modules for m in ('mpmath', 'sympy', 'langdetect', 'jax')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
