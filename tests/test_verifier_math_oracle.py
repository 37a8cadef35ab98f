"""Agreement of the math verifier with recorded opinions, every disagreement named.

The record pairs golds of MATH with responses made from them and says whether each is right. It holds the verdicts of
four public graders too.
"""

import time

import pytest

from vsr_jax.errors import UserError
from vsr_jax.verifiers import check_math
from vsr_jax.verifiers.selfcheck import FILE, OURS, agreement_tables, math_comparisons

# Pairs on which we hold the recorded opinion to be a slip in the making of the record.
DISAGREEMENTS = {
    "2c74b8680334": "-221_{3} is the gold -221_3; the record meant to change the base and drew the same one",
    "86db24da319b": "235^{1/2}/35 is not 2 sqrt(35)/35: the number before the root ran into the radicand",
    "6c751f4080d2": "22^{1/2} is not 2 sqrt(2), for the same reason",
    "89eb0207421d": "`2, 3,` lacks the 4 of the gold `2, 3, and 4`; the record took `and 4` for a unit",
}


def disagreements(path):
    settled = [item for item in math_comparisons(path) if item.intended is not None]
    return {item.key for item in settled if item.verdicts[OURS] != item.intended}, len(settled)


def test_agreement_and_every_disagreement(shared_dir):
    found, count = disagreements(shared_dir / "data/oracle" / FILE)
    assert count == 701
    assert found == set(DISAGREEMENTS)
    assert 1 - len(found) / count >= 0.99


def test_agreement_on_the_sample(samples_dir):
    found, count = disagreements(samples_dir / "math_equivalence_sample.jsonl")
    assert count == 88
    assert found <= set(DISAGREEMENTS)


def test_no_pair_takes_long(shared_dir):
    for item in math_comparisons(shared_dir / "data/oracle" / FILE):
        start = time.process_time()
        check_math(item.gold, item.response)
        assert time.process_time() - start < 0.1, item


def test_no_public_grader_agrees_as_often(shared_dir):
    table = agreement_tables(shared_dir / "data/oracle")
    assert sum(row["rows"] for row in table[:-1]) == table[-1]["rows"] == 701
    assert table[-1]["left_out"] == 223
    others = {name: share for name, share in table[-1].items() if name not in ("group", "rows", "left_out", OURS)}
    assert set(others) == {"math_verify", "prm800k", "qwen25_math", "hendrycks_is_equiv"}
    assert max(others.values()) < 0.96 < 0.99 < table[-1][OURS]


def test_debatable_pairs_follow_the_stated_conventions(shared_dir):
    """What the record leaves open, we decide by rule; each rule holds on all its pairs."""
    accepted = {
        "percent", "degree", "dollar_sign", "lower", "upper", "word_pi", "plain_sqrt", "nested_box", "fbox", "or",
        "and", "tuple", "answer_colon", "thousands_space", "box_text", "double_escaped", "box_nobrace", "bold",
    }  # fmt: skip
    refused = {
        "no_base", "no_brackets", "braces", "decimal_exact_or_long", "unclosed_box", "bare", "unboxed_sentence",
        "unboxed_dollar", "answer_tags", "hash4", "flat", "times_one_or_digit",
    }  # fmt: skip
    seen = set()
    for item in math_comparisons(shared_dir / "data/oracle" / FILE):
        if item.intended is None and item.transform in accepted | refused:
            seen.add(item.transform)
            assert item.verdicts[OURS] == (item.transform in accepted), item
    assert seen == accepted | refused


def test_a_bad_record_is_named(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        agreement_tables(tmp_path)
    (tmp_path / FILE).write_text('{"id": "a", "gold": "1"}\n')
    with pytest.raises(UserError, match="line 1: no field `gold_class`"):
        agreement_tables(tmp_path)
    (tmp_path / FILE).write_text("nothing\n")
    with pytest.raises(UserError, match="line 1: not JSON"):
        agreement_tables(tmp_path)
    (tmp_path / FILE).write_text("")
    with pytest.raises(UserError, match="no pair"):
        agreement_tables(tmp_path)
