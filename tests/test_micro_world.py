"""The micro world: its prompts, its corpus and its tokenizer, under the real checkers."""

import itertools
from collections import Counter

import numpy as np
import pytest

from vsr_jax.data import micro
from vsr_jax.data.micro.draws import Draws
from vsr_jax.data.micro.vocabulary import ADJECTIVES
from vsr_jax.data.rows import check_row
from vsr_jax.errors import UserError
from vsr_jax.verifiers import check_instructions, check_math

WORLDS = sorted(micro.PRESETS)


@pytest.fixture(scope="module")
def examples() -> list[micro.Example]:
    return list(itertools.islice(micro.corpus(micro.DEFAULT, seed=11), 6000))


@pytest.fixture(scope="module")
def tokenizer():
    return micro.build_tokenizer()


@pytest.mark.parametrize("name", WORLDS)
def test_every_text_is_made_of_known_tokens_and_fits(name, tokenizer):
    world = micro.PRESETS[name]
    drill = itertools.islice(micro.corpus(world, 3, "drill"), 500)
    for example in itertools.chain(drill, itertools.islice(micro.corpus(world, 3), 4000)):
        for text, limit in ((example.prompt, world.max_prompt - 1), (example.response, world.max_response)):
            ids = tokenizer.encode(text).ids
            assert tokenizer.token_to_id(micro.UNKNOWN) not in ids, text
            assert tokenizer.decode(ids) == text
            assert len(ids) <= limit
        length = len(tokenizer.encode(example.response).ids)
        assert length < world.max_response if example.ends else length == world.max_response
        assert example.ends == (example.opening != "rambling")


def test_tokenizer_loads_in_transformers(tmp_path, tokenizer):
    from transformers import AutoTokenizer

    micro.save_tokenizer(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    rows = micro.joint_rows(micro.DEFAULT, 0, 20) + micro.math_rows(micro.DEFAULT, 0, 20)
    for row in rows:
        ids = micro.encode_prompt(tokenizer, row)
        assert micro.encode_prompt(loaded, row) == ids
        chat = [{"role": "user", "content": row.prompt}]
        assert loaded.apply_chat_template(chat, tokenize=False) == f"{row.prompt} {micro.ASSISTANT}"
        assert loaded.decode(ids, skip_special_tokens=True) == row.prompt
    text = '{ " text " : " Sure : Old rivers . " }'
    assert loaded.decode(loaded.encode(text, add_special_tokens=False)) == text
    assert (loaded.pad_token, loaded.eos_token) == (micro.PAD, micro.EOS)
    assert len(loaded) == len(micro.vocabulary()) == len(set(micro.vocabulary()))


def test_any_ids_survive_decoding(tokenizer):
    ids = np.random.default_rng(0).integers(4, len(micro.vocabulary()), 2000).tolist()
    assert tokenizer.encode(tokenizer.decode(ids)).ids == ids


def test_foreign_prompt_is_refused(tokenizer):
    row = micro.math_rows(micro.DEFAULT, 0, 1)[0]
    foreign = type(row)(row.id, "Prove that 2 is prime", "math", "2")
    with pytest.raises(UserError, match="outside the micro world"):
        micro.encode_prompt(tokenizer, foreign)


def test_no_word_hides_in_another():
    for word in ADJECTIVES:
        assert not [other for other in micro.vocabulary() if word in other.lower() and other.lower() != word]


def test_claims_of_compliance_agree_with_the_real_checker(examples):
    checked = Counter()
    for example in examples:
        drawn = example.constraints
        if example.complies is None:
            continue
        ids = [item.instruction_id for item in drawn]
        kwargs = [item.kwargs for item in drawn]
        verdict = check_instructions(ids, kwargs, example.response, prompt=example.prompt)
        assert verdict.passed == example.complies, (example, verdict)
        for item, held in zip(drawn, verdict.parts, strict=True):
            checked[item.kind, held] += 1
    kinds = {kind for kind, _ in micro.DEFAULT.constraints}
    assert {key for key, count in checked.items() if count >= 20} == set(itertools.product(kinds, (True, False)))


def test_claims_of_correctness_agree_with_the_real_checker(examples):
    outcomes = Counter()
    for example in examples[:1500]:
        if example.gold is None:
            continue
        verdict = check_math(example.gold, example.response)
        assert verdict.passed == bool(example.correct), (example, verdict)
        outcomes[example.correct, verdict.status] += 1
    assert outcomes[True, "correct"] > 300
    assert outcomes[False, "wrong"] > 20
    assert outcomes[None, "no_answer"] > 100


def test_wrong_boxes_fail():
    row = micro.math_rows(micro.DEFAULT, 0, 1)[0]
    _, first, _, second = str(row.gold).split()
    assert check_row(row, f"Answer : \\boxed{{ {row.gold} }} .").passed
    for wrong in (f"<1> {second} <2> {(int(first) + 1) % 10}", f"<1> {first}", f"{first} {second}", "<1> <2>"):
        assert not check_row(row, f"Answer : \\boxed{{ {wrong} }} .").passed


def test_shares_are_those_of_the_world(examples):
    total = Counter(example.kind for example in examples)
    assert {kind: round(count / len(examples), 1) for kind, count in total.items()} == {
        "math": 0.5, "inst": 0.3, "mix": 0.2,
    }  # fmt: skip
    math = [example for example in examples if example.kind == "math"]
    for opening, share in micro.DEFAULT.openings:
        measured = np.mean([example.opening == opening for example in math])
        assert measured == pytest.approx(share, abs=0.04)
    for kind in ("inst", "mix"):
        ended = [float(bool(example.complies)) for example in examples if example.kind == kind and example.ends]
        assert np.mean(ended) == pytest.approx(micro.DEFAULT.compliance, abs=0.05)


def test_chain_errors_propagate_at_the_stated_rate():
    math = [e for e in itertools.islice(micro.corpus(micro.DEFAULT, 8), 8000) if e.opening == "DRI"]
    plain = [e for e in math if e.kind == "math"]
    steps, errors = 0, 0
    for example in plain:
        tokens = example.response.split(" ")
        for index, token in enumerate(tokens):
            if token == "=":
                # The left operand stands before `(k) op operand =`: the start digit or the previous result.
                left, operator, right = int(tokens[index - 4]), tokens[index - 2], int(tokens[index - 1])
                true = {"+": left + right, "-": left - right, "x": left * right}[operator] % 10
                steps += 1
                errors += int(tokens[index + 1]) != true
    assert errors / steps == pytest.approx(micro.DEFAULT.step_error, abs=0.01)
    # A wrong step can be undone by a later one (times zero), so accuracy lies a little above.
    expected = np.mean([(1 - micro.DEFAULT.step_error) ** e.response.count("=") for e in plain])
    assert expected - 0.01 < np.mean([bool(e.correct) for e in plain]) < expected + 0.06


def test_the_drill_is_correct_chains_only():
    for example in itertools.islice(micro.corpus(micro.DEFAULT, 0, "drill"), 300):
        assert (example.kind, example.opening, example.correct) == ("math", "DRI", True)
        assert " = " in example.response
    with pytest.raises(UserError, match="use drill or mixed"):
        micro.corpus(micro.DEFAULT, 0, "warmup")  # type: ignore[arg-type]


def test_training_and_evaluation_prompts_never_meet(examples):
    makers = (micro.math_rows, micro.instruction_rows, micro.joint_rows)
    evaluation = {row.prompt for make in makers for row in make(micro.DEFAULT, 0, 64, split="evaluation")}
    assert len(evaluation) == 3 * 64
    training = {row.prompt for make in makers for seed in (0, 1) for row in make(micro.DEFAULT, seed, 2000)}
    assert not evaluation & training
    assert not evaluation & {example.prompt for example in examples}
    left = {row.prompt for row in micro.math_rows(micro.DEFAULT, 0, 64, split="evaluation", exclude=evaluation)}
    assert len(left) == 64
    assert not left & evaluation


def test_rows_are_reproducible_and_unique():
    rows = micro.instruction_rows(micro.DEFAULT, 7, 300)
    assert rows == micro.instruction_rows(micro.DEFAULT, 7, 300)
    assert rows[:50] == micro.instruction_rows(micro.DEFAULT, 7, 50)
    assert rows != micro.instruction_rows(micro.DEFAULT, 8, 300)
    assert len({row.id for row in rows}) == len({row.prompt for row in rows}) == 300
    assert np.mean([row.gold is not None for row in rows]) == pytest.approx(micro.DEFAULT.mix_share, abs=0.08)
    assert all(row.gold is None for row in micro.instruction_rows(micro.PRESETS["no_mix"], 7, 100))


def test_draws_do_not_depend_on_the_platform():
    draws = Draws(1, 2)
    assert [draws.between(0, 99) for _ in range(5)] == [78, 76, 60, 86, 2]
    assert micro.math_rows(micro.DEFAULT, 0, 1)[0].prompt == (
        "[1] 8 (1) - 9 . [2] 7 (2) - 3 (3) - 9 . What is the result ?"
    )


def test_constraints_come_first_as_often_as_stated():
    rows = micro.joint_rows(micro.DEFAULT, 0, 1000)
    assert np.mean([row.prompt.endswith("What is the result ?") for row in rows]) == pytest.approx(0.7, abs=0.05)


def test_joint_rows_are_checked_for_both():
    for row in micro.joint_rows(micro.DEFAULT, 3, 200):
        if row.instruction_ids == ("punctuation:no_comma",):
            break
    answer = f"Answer : \\boxed{{ {row.gold} }} ."
    assert check_row(row, answer).parts == (True, True)
    assert check_row(row, f"Sure , {answer}").parts == (True, False)
    assert not check_row(row, f"Sure , {answer}").passed
    assert check_row(row, "Answer : \\boxed{ <1> 0 } .").parts == (False, True)
