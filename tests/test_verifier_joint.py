"""Joint behaviour: answer and instructions of MathIF and ReasonIF rows, each in its scope."""

import json

import pytest

from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.verifiers import check_joint
from vsr_jax.verifiers.joint import check_tagged_answer, followed_text

MATHIF = {
    "source": "aime",
    "id": "aime-single-0",
    "question": "How many?",
    "answer": "902",
    "constraint_desc": ["No commas."],
    "constraint_name": ["punctuation:no_comma"],
    "constraint_args": [None],
}
REASONIF = {
    "source": "arc",
    "hf_id": "allenai/ai2_arc",
    "question": "Which?",
    "answer": "D",
    "constraint_name": ["punctuation:no_comma"],
    "constraint_args": [None],
    "prompt": "Which? No commas in the reasoning.",
}


@pytest.mark.parametrize(
    ("response", "correct", "followed"),
    [
        (r"So \boxed{902}", True, True),
        (r"So, \boxed{902}", True, False),
        (r"So \boxed{901}", False, True),
        (r"So, \boxed{901}", False, False),
        (r"<think>well, hm, \boxed{1}</think>So \boxed{902}", True, True),
        (r"<think>well \boxed{902}", False, False),  # cut off while thinking: neither
        (r"Well, <answer>\boxed{902}</answer>, done", True, True),  # the scope of F is inside the tag
        (r"Well <answer>902</answer>", True, True),
        (r"Well <answer>902", False, True),
        (r"\boxed{902} <answer>It is 902</answer>", False, True),  # the tag is the answer, and this is no number
        ("902", False, True),  # mentioned only
        ("", False, False),
    ],
)
def test_mathif(response, correct, followed):
    verdict = check_joint(MATHIF, response)
    assert (verdict.correct.passed, verdict.followed.passed) == (correct, followed)
    assert verdict.joint == (correct and followed)


@pytest.mark.parametrize(
    ("response", "correct", "followed"),
    [
        ("<think>A no B no</think>Well, <answer>D</answer>", True, True),
        ("<think>A, B</think>Well <answer>D</answer>", True, False),
        ("It is not A. <answer>D, surely</answer>", False, True),  # without thoughts the reasoning ends at the tag
        ("It is not A, so <answer>D</answer>", True, False),
        ("Easy. <answer>(D) 12 km</answer>", True, True),
        ("Easy. <answer>D) 12 km</answer>", True, True),
        ("Easy. <answer>C</answer> no <answer>d</answer>", False, True),
        ("Easy. <answer>C</answer> no <answer>D</answer>", True, True),
        (r"Easy. <answer>\boxed{D}</answer>", True, True),
        ("Easy. <answer>Answer: D</answer>", True, True),
        ("Easy. Answer: D", True, True),
        ("Easy. D", False, True),
        ("<think>D", False, True),  # the reasoning itself holds no comma
    ],
)
def test_reasonif(response, correct, followed):
    verdict = check_joint(REASONIF, response)
    assert (verdict.correct.passed, verdict.followed.passed) == (correct, followed)


def test_the_box_inside_a_tag_must_be_finished():
    assert check_tagged_answer("5", r"<answer>\boxed{5</answer>").status == "no_answer"
    assert check_tagged_answer("5", "<answer> </answer>").status == "no_answer"
    assert check_tagged_answer(" 5", "<answer>x = 5</answer>").passed


def test_scopes():
    response = "<think>one, two</think>three <answer>four</answer> five"
    assert followed_text(response, "mathif") == "four"
    assert followed_text(response, "reasonif") == "one, two"
    assert followed_text("one <answer>two</answer> three", "reasonif") == "one "


def test_rows_and_mappings_agree():
    row = Row("r", "Which?", "joint", "D", ("punctuation:no_comma",), ({},), "reasonif", REASONIF)
    response = "A, no. <answer>D</answer>"
    assert check_joint(row, response) == check_joint(REASONIF, response)
    assert check_joint(MATHIF | {"suite": "reasonif"}, "a <answer>902, yes</answer>").followed.passed


def test_parts_are_in_order_and_strict():
    row = MATHIF | {
        "constraint_name": ["punctuation:no_comma", "startend:quotation", "keywords:existence"],
        "constraint_args": [None, None, {"keywords": ["so"]}],
    }
    assert check_joint(row, r"so \boxed{902}").followed.parts == (True, False, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": ""}, "field `answer`"),
        ({"constraint_name": ["punctuation:none"]}, "unknown instruction id"),
        ({"constraint_args": []}, "0 kwargs"),
        ({"suite": "mathlf"}, "unknown instruction suite"),
    ],
)
def test_malformed_rows_are_raised(change, message):
    with pytest.raises(UserError, match=message):
        check_joint(MATHIF | change, r"\boxed{902}")


def test_missing_field_is_named():
    with pytest.raises(UserError, match="field `constraint_args`: is missing"):
        check_joint({"answer": "1", "constraint_name": []}, "")


@pytest.mark.parametrize("name", ["mathif/mathif.jsonl", "reasonif/reasonif.jsonl"])
def test_every_row_accepts_its_own_answer(shared_dir, name):
    """C holds for the gold in the form that the prompt asks for, on every row of both benchmarks."""
    with (shared_dir / "data" / name).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        form = rf"\boxed{{{row['answer']}}}" if name.startswith("mathif") else f"<answer>{row['answer']}</answer>"
        verdict = check_joint(row, f"So {form}")
        assert verdict.correct.passed, row["answer"]
        assert len(verdict.followed.parts) == len(row["constraint_name"])
