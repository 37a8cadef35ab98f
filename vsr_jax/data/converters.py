"""One function a benchmark: a raw record becomes a `Row`. The record is kept, untouched, as `Row.source`."""

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from vsr_jax.data.aime import answer_of
from vsr_jax.data.literal import parse_literal
from vsr_jax.data.records import Record
from vsr_jax.data.rows import Row
from vsr_jax.verifiers.math_extract import last_box

# Solutions of MATH train whose last box is empty or broken in every public copy, with the right answers, by problem
# (copies differ in ids). number_theory/7115 and /7117 have `\\boxed{}`, algebra/24014 has `\\boxed{2$}`.
MATH_CORRECTIONS = {"8661fac1c823": "0", "f25e61792419": "0", "b72313232f8e": "2"}

_STEP_BY_STEP = "Let's think step by step and output the final answer within \\boxed{}."


def fingerprint(text: str) -> str:
    """Twelve hex digits that name a text, whatever its spacing."""
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()[:12]


def math_train(record: Record) -> Row:
    """MATH train: `answer` where a copy has it, else the last box of `solution`."""
    problem = record.text("problem")
    gold = MATH_CORRECTIONS.get(fingerprint(problem))
    if gold is None and "answer" in record.fields:
        gold = record.text("answer")
    if gold is None:
        boxed = last_box(record.text("solution"))
        gold = boxed.answer if boxed else None
    if not gold:
        record.fail("solution", "has no boxed answer; drop the row or add an answer field")
    name = record.fields.get("unique_id") or f"train/{fingerprint(problem)}"
    return Row(f"math_train/{name}", problem, "math", gold, source=record.fields)


def math500(record: Record) -> Row:
    """MATH-500."""
    name = f"math500/{record.text('unique_id')}"
    return Row(name, record.text("problem"), "math", record.text("answer"), source=record.fields)


def aime(year: str, record: Record) -> Row:
    """AIME 2024 or 2025; the gold is the plain integer."""
    problem = record.text("problem", "question")
    name = record.fields.get("id", fingerprint(problem))
    return Row(f"{year}/{name}", problem, "math", str(answer_of(record)), source=record.fields)


def gsm8k(record: Record) -> Row:
    """GSM8K: the gold is what follows `####`, without thousands separators."""
    _, mark, gold = record.text("answer").rpartition("####")
    gold = gold.strip().replace(",", "")
    if not mark or not gold:
        record.fail("answer", "must end with `#### number`")
    name = record.fields.get("idx", fingerprint(record.text("question")))
    return Row(f"gsm8k/{name}", record.text("question"), "math", gold, source=record.fields)


def ifeval(record: Record) -> Row:
    """IFEval."""
    return _instructions(record, "ifeval")


def ifbench(record: Record) -> Row:
    """IFBench test."""
    return _instructions(record, "ifbench")


def _instructions(record: Record, suite: Literal["ifeval", "ifbench"]) -> Row:
    ids = record.items("instruction_id_list", str)
    kwargs = _kwargs(record, "kwargs", record.items("kwargs", dict, none_allowed=True), ids)
    name = f"{suite}/{record.fields.get('key', record.position)}"
    return Row(name, record.text("prompt"), "instructions", None, tuple(ids), kwargs, suite, record.fields)


def iftrain(record: Record) -> Row:
    """IFTrain: constraints come as a Python literal in `ground_truth`, the prompt as one user message."""
    messages = record.items("messages", dict)
    if len(messages) != 1 or messages[0].get("role") != "user" or not str(messages[0].get("content") or "").strip():
        record.fail("messages", "must be one user message with content")
    try:
        truth = parse_literal(record.text("ground_truth"))
    except ValueError as error:
        record.fail("ground_truth", str(error))
    if not isinstance(truth, list) or len(truth) != 1 or not isinstance(truth[0], dict):
        record.fail("ground_truth", "must be a list of one dict")
    inner = Record(truth[0], f"{record.where}: ground_truth", record.position)
    ids = inner.items("instruction_id", str)
    kwargs = _kwargs(inner, "kwargs", inner.items("kwargs", dict, none_allowed=True), ids)
    name = f"iftrain/{record.fields.get('key', record.position)}"
    return Row(name, messages[0]["content"], "instructions", None, tuple(ids), kwargs, "iftrain", record.fields)


def mathif(record: Record) -> Row:
    """MathIF: question, request to think step by step and constraints are joined as its authors' runner joins them.

    The field `id` repeats within the benchmark, so the row is named by its question.
    """
    ids = record.items("constraint_name", str)
    kwargs = _kwargs(record, "constraint_args", record.items("constraint_args", dict, none_allowed=True), ids)
    constraints = " ".join(record.items("constraint_desc", str))
    prompt = record.text("question") + _STEP_BY_STEP + constraints
    name = f"mathif/{fingerprint(record.text('question'))}"
    return Row(name, prompt, "joint", record.text("answer"), tuple(ids), kwargs, "mathif", record.fields)


def reasonif(record: Record) -> Row:
    """ReasonIF: the constraints are about the reasoning; the prompt passes through unchanged."""
    ids = record.items("constraint_name", str)
    kwargs = _kwargs(record, "constraint_args", record.items("constraint_args", dict, none_allowed=True), ids)
    gold = record.text("answer")
    name = f"reasonif/{fingerprint(record.text('prompt'))}"
    return Row(name, record.text("prompt"), "joint", gold, tuple(ids), kwargs, "reasonif", record.fields)


def _kwargs(
    record: Record, name: str, given: list[Mapping[str, Any] | None], ids: list[str]
) -> tuple[Mapping[str, Any], ...]:
    """Arguments by position without those that are None: columnar copies fill unused fields so. 0 and "" are values."""
    if not ids:
        record.fail(name, "belongs to no constraint: the row has no instruction ids")
    if len(given) != len(ids):
        record.fail(name, f"has {len(given)} entries for {len(ids)} instruction ids")
    return tuple({key: value for key, value in (entry or {}).items() if value is not None} for entry in given)
