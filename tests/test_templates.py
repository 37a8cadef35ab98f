"""Prompt framings: their texts, their ids, and a user's Jinja file in a sandbox."""

import gzip
import shutil

import pytest

from vsr_jax.data import micro
from vsr_jax.data.templates import FRAMINGS, encode_prompt, render
from vsr_jax.errors import UserError

PROMPT = "What is {x} + $3$?\nShow {{ work }}."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The micro tokenizer, with a chat template that shows roles."""
    from transformers import AutoTokenizer

    directory = tmp_path_factory.mktemp("tokenizer")
    micro.save_tokenizer(directory)
    loaded = AutoTokenizer.from_pretrained(directory)
    loaded.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<go>{% endif %}"
    )
    return loaded


@pytest.mark.parametrize(
    ("framing", "expected"),
    [
        ("raw", PROMPT),
        ("bare", f"user\n{PROMPT}\nassistant\n"),
        ("micro", f"{PROMPT} <|assistant|>"),
        ("boxed", f"{PROMPT}\n\nPut your final answer in \\boxed{{}}."),
        ("bare+boxed", f"user\n{PROMPT}\n\nPut your final answer in \\boxed{{}}.\nassistant\n"),
        ("chat", f"<user>{PROMPT}<go>"),
        ("chat+boxed", f"<user>{PROMPT}\n\nPut your final answer in \\boxed{{}}.<go>"),
    ],
)
def test_texts(framing, expected, tokenizer):
    assert render(framing, PROMPT, tokenizer) == expected


@pytest.mark.parametrize("framing", FRAMINGS)
def test_every_framing_keeps_the_prompt_whole(framing, tokenizer):
    assert render(framing, PROMPT, tokenizer).count(PROMPT) == 1


def test_math_framings_ask_for_what_the_checker_reads(tokenizer):
    step = render("boxed_step_by_step", PROMPT)
    plain = render("boxed", PROMPT)
    assert "step by step" in step
    assert step.replace("Solve the problem step by step. ", "") == plain
    dapo = render("dapo_math", PROMPT)
    assert dapo.index("step by step") < dapo.index("Answer: $Answer") < dapo.index(PROMPT) < dapo.index('"Answer:"')
    assert render("aime_answer_line", PROMPT).endswith('"Answer: N".')
    assert "step" not in render("aime_answer_line", PROMPT)
    system = render("qwen_math_system", PROMPT, tokenizer)
    assert system.startswith("<system>")
    assert "\\boxed{}" in system.partition("<user>")[0]


@pytest.mark.parametrize("framing", ["raw+", "+boxed", "boxed+chat", "boxed+boxed", "chat+raw", "chat+boxed+boxed", ""])
def test_unknown_framings_are_refused(framing, tokenizer):
    with pytest.raises(UserError, match=r"unknown; use one of raw, bare, micro, chat, .* or a \.jinja file"):
        render(framing, PROMPT, tokenizer)
    with pytest.raises(UserError, match="unknown"):
        encode_prompt(framing, PROMPT, tokenizer)


def test_chat_needs_a_chat_template(tokenizer):
    with pytest.raises(UserError, match="framing chat: the tokenizer has no chat template"):
        render("chat", PROMPT)
    without = type("Bare", (), {"chat_template": None})()
    with pytest.raises(UserError, match="framing qwen_math_system: the tokenizer has no chat template"):
        render("qwen_math_system", PROMPT, without)


def test_micro_ids_are_those_of_the_micro_world(tokenizer):
    for row in micro.joint_rows(micro.DEFAULT, 0, 10):
        assert encode_prompt("micro", row.prompt, tokenizer) == micro.encode_prompt(micro.build_tokenizer(), row)
    with pytest.raises(UserError, match="framing raw: the prompt has no tokens"):
        encode_prompt("raw", "", tokenizer)


class Recorder:
    """A tokenizer that notes how it is asked to encode."""

    chat_template = "x"
    bos_token = "<s>"

    def __init__(self):
        self.added = []

    def encode(self, text, add_special_tokens):
        self.added.append(add_special_tokens)
        return [len(text)]

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return f"<s>{messages[-1]['content']}"


def test_special_tokens_are_added_once(tmp_path):
    (tmp_path / "own.jinja").write_text("{{ bos_token }}{{ prompt }}\n")
    recorder = Recorder()
    framings = ("raw", "boxed", "bare+boxed", "chat", "chat+boxed", "qwen_math_system", str(tmp_path / "own.jinja"))
    for framing in framings:
        encode_prompt(framing, PROMPT, recorder)
    assert recorder.added == [True, True, True, False, False, False, False]
    assert render(framings[-1], PROMPT, recorder) == f"<s>{PROMPT}"


def test_jinja_file_sees_prompt_and_messages(tmp_path):
    path = tmp_path / "own.jinja"
    path.write_text("Q: {{ prompt }}\n{% if add_generation_prompt %}\nA ({{ messages | length }}):{% endif %}")
    assert render(str(path), PROMPT) == f"Q: {PROMPT}\nA (1):"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ prompt }}\n{% if %}", r"own\.jinja:2: "),
        ("{{ promt }}", "'promt' is undefined"),
        ("{{ bos_token }}{{ prompt }}", "'bos_token' is undefined"),
        ("{{ ''.__class__.__mro__ }}{{ prompt }}", "unsafe"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}{{ prompt }}", "[Rr]ange"),
        ("{{ 1 + 'a' }}{{ prompt }}", "unsupported operand"),
        ("{{ 1 // 0 }}{{ prompt }}", "division"),
        ("{{ messages.append(1) }}{{ prompt }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("Solve it.", "lacks the prompt"),
    ],
)
def test_a_bad_jinja_file_is_named(text, message, tmp_path):
    path = tmp_path / "own.jinja"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        render(str(path), PROMPT)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_jinja_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.j2: no such file"):
        render(str(tmp_path / "none.j2"), PROMPT)


def test_the_real_chat_template(shared_dir, tmp_path):
    from transformers import AutoTokenizer

    source = shared_dir / "data" / "qwen_tokenizer"
    (tmp_path / "tokenizer.json").write_bytes(gzip.decompress((source / "tokenizer.json.gz").read_bytes()))
    shutil.copy(source / "tokenizer_config.json", tmp_path)
    qwen = AutoTokenizer.from_pretrained(tmp_path)
    turn = "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    assert render("chat", "1 + 1?", qwen) == turn
    system = render("qwen_math_system", "1 + 1?", qwen)
    assert system.startswith("<|im_start|>system\n")
    assert system.endswith(turn)
    start, end = qwen.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    ids = encode_prompt("chat+boxed", "1 + 1?", qwen)
    assert (ids.count(start), ids.count(end)) == (2, 1)
    assert qwen.decode(encode_prompt("bare", "1 + 1?", qwen)) == "user\n1 + 1?\nassistant\n"
