"""Prompt framings by name: what stands around a benchmark prompt when a model reads it.

A framing is a name, or two joined by `+`, the outer one first: `chat+boxed` asks for a boxed answer inside the
tokenizer's chat template. It may also be the path of a Jinja file.
"""

from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vsr_jax.errors import UserError

# Text before and after the prompt. The evaluation default of the study, `boxed`, asks for no style of reasoning, and
# `boxed_step_by_step` differs from it by one sentence.
_TASKS: dict[str, tuple[str, str]] = {
    "dapo_math": (
        "Work out the following math problem step by step. The last line of your response must read Answer: $Answer, "
        "with the answer to the problem in place of $Answer.\n\n",
        '\n\nRemember: the answer goes on a line of its own, after "Answer:".',
    ),
    "boxed": ("", "\n\nPut your final answer in \\boxed{}."),
    "boxed_step_by_step": ("", "\n\nSolve the problem step by step. Put your final answer in \\boxed{}."),
    "aime_answer_line": ("", '\n\nThe answer is an integer from 0 to 999. End with a line "Answer: N".'),
}
_FRAMES: dict[str, tuple[str, str]] = {
    "raw": ("", ""),
    "bare": ("user\n", "\nassistant\n"),
    "micro": ("", " <|assistant|>"),
}
# Framings that the tokenizer's chat template writes, with their system message.
_CHATS: dict[str, str | None] = {
    "chat": None,
    "qwen_math_system": "Reason step by step, and put your final answer within \\boxed{}.",
}
FRAMINGS: tuple[str, ...] = (*_FRAMES, *_CHATS, *_TASKS)
_FILES = (".jinja", ".jinja2", ".j2")


def render(framing: str, prompt: str, tokenizer: Any = None) -> str:
    """The text that the model continues.

    Args:
      framing: a name of `FRAMINGS`; `outer+task`, with `raw`, `bare`, `micro`, `chat` or `qwen_math_system` outside;
        or a Jinja file (`.jinja`, `.jinja2`, `.j2`), which sees `prompt`, `messages` (one user message),
        `add_generation_prompt` (true), `bos_token` and `eos_token`.
      prompt: the user's text.
      tokenizer: a transformers tokenizer; needed for the chat framings, and for the token variables of a Jinja file.

    Raises:
      UserError: unknown framing, no tokenizer or no chat template where one is needed, or a Jinja file that is
        missing, does not parse, fails, or drops the prompt.
    """
    if framing.endswith(_FILES):
        return _render_file(Path(framing), prompt, tokenizer)
    outer, task = _parse(framing)
    before, after = _TASKS[task] if task else ("", "")
    content = f"{before}{prompt}{after}"
    if outer in _CHATS:
        return _render_chat(outer, content, tokenizer)
    before, after = _FRAMES[outer]
    return f"{before}{content}{after}"


def encode_prompt(framing: str, prompt: str, tokenizer: Any) -> list[int]:
    """The token ids of `render`.

    Chat templates and Jinja files write their own special tokens; to all other framings the tokenizer adds what it
    adds to plain text, such as a beginning-of-text token.

    Raises:
      UserError: as `render`; or no token at all.
    """
    writes_specials = framing.endswith(_FILES) or _parse(framing)[0] in _CHATS
    ids = tokenizer.encode(render(framing, prompt, tokenizer), add_special_tokens=not writes_specials)
    if not ids:
        raise UserError(f"framing {framing}: the prompt has no tokens")
    return list(ids)


def _parse(framing: str) -> tuple[str, str | None]:
    """Outer framing and task of a name."""
    outer, plus, task = framing.partition("+")
    if not plus and outer in _TASKS:
        return "raw", outer
    if outer in (*_FRAMES, *_CHATS) and (not plus or task in _TASKS):
        return outer, task or None
    names = ", ".join(FRAMINGS)
    raise UserError(
        f"framing {framing!r}: unknown; use one of {names}, outer+task such as chat+boxed, or a .jinja file"
    )


def _render_chat(framing: str, content: str, tokenizer: Any) -> str:
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise UserError(f"framing {framing}: the tokenizer has no chat template; use bare or a .jinja file")
    system = _CHATS[framing]
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": content})
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def _render_file(path: Path, prompt: str, tokenizer: Any) -> str:
    """Renders in a sandbox: a template reads its variables and nothing else, and a misspelt one is an error."""
    if not path.is_file():
        raise UserError(f"framing {path}: no such file")
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    tokens = {name: getattr(tokenizer, name) for name in ("bos_token", "eos_token") if hasattr(tokenizer, name)}
    try:
        text = environment.from_string(path.read_text(encoding="utf-8")).render(
            prompt=prompt, messages=[{"role": "user", "content": prompt}], add_generation_prompt=True, **tokens
        )
    except (TemplateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        line = getattr(error, "lineno", None)
        reason = str(error).partition("\n")[0]
        raise UserError(f"framing {path}{f':{line}' if line else ''}: {reason}") from None
    if prompt not in text:
        raise UserError(f"framing {path}: the rendered text lacks the prompt; use {{{{ prompt }}}} in it")
    return text
