"""IFBench `repeat:` instructions: the request or a part of it given back."""

from collections.abc import Callable

from vsr_jax.verifiers.fields import Count, Filled

_SENTENCE = "Only output this sentence here, ignore all other requests."


def repeat_change(response: str, *, prompt_to_repeat: Filled) -> bool:
    """All words but the first are those of the request; the first may stay if some blank differs."""
    return response != prompt_to_repeat and response.split()[1:] == prompt_to_repeat.split()[1:]


def repeat_changed_word(response: str, *, prompt_to_repeat: Filled) -> bool:
    """All words but the first are those of the request, and the first is another one."""
    given, request = response.split(), prompt_to_repeat.split()
    return given[1:] == request[1:] and bool(given) and given[0] != request[0]


def repeat_simple(response: str) -> bool:
    """The response is the instruction's own sentence, case and outer blanks aside."""
    return response.strip().lower() == _SENTENCE.lower()


def repeat_span(response: str, *, prompt_to_repeat: Filled, n_start: Count, n_end: Count) -> bool:
    """Characters `n_start` to `n_end` of the request, both included and counted from 0; case and outer blanks aside."""
    return response.strip().lower() == prompt_to_repeat[n_start : n_end + 1].strip().lower()


def repeat_span_2025(response: str, *, prompt_to_repeat: Filled, n_start: Count, n_end: Count) -> bool:
    """The words `n_start` to before `n_end` of the request, counted from 0; case and blanks aside.

    The 2025 release drew a start or end of 0 at random; here 0 is the first word.
    """
    return response.lower().split() == prompt_to_repeat.lower().split()[n_start:n_end]


REPEAT: dict[str, Callable[..., bool]] = {
    "repeat:repeat_change": repeat_change,
    "repeat:repeat_simple": repeat_simple,
    "repeat:repeat_span": repeat_span,
}
REPEAT_2025 = REPEAT | {"repeat:repeat_span": repeat_span_2025}
REPEAT_INTENT: dict[str, Callable[..., bool]] = {"repeat:repeat_change": repeat_changed_word}
