"""The text that the Base policy is pretrained on."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from vsr_jax.data.micro.draws import Draws
from vsr_jax.data.micro.instructions import Constraint
from vsr_jax.data.micro.math import FINAL, answer, box, chain
from vsr_jax.data.micro.prompts import Prompt, draw_instruction, draw_math, draw_mix, split_of
from vsr_jax.data.micro.vocabulary import RAMBLING_VERBS, TOPICS
from vsr_jax.data.micro.world import MicroWorld
from vsr_jax.data.micro.writing import Plan, make_plan, topic_subject, write_solution, write_text
from vsr_jax.errors import UserError

OPENINGS: dict[str, tuple[str, ...]] = {
    "DRI": ("Let us solve step by step :", "First we compute :", "To solve this :", "We need to compute :"),
    "DAI": ("Answer :", "The final answer is", "Final answer :"),
    "neutral": ("Here it is :", "Sure :"),
}
_TRIES = 20


class Example(NamedTuple):
    """One training text.

    Attributes:
      prompt, response: text; the loss is on the response.
      ends: whether `<eos>` follows the response. A rambling response fills `max_response` tokens and does not end.
      kind: `math`, `inst` (instructions) or `mix` (both).
      opening: `DRI`, `DAI`, `neutral`, `rambling`; `none` where constraints leave no room for an opening.
      complies: whether the response meets all constraints; None without constraints or where it does not end.
      correct: whether the boxed answer is right; None without one.
      gold: the true answer; None without a problem.
      constraints: what the prompt asks of the response.
    """

    prompt: str
    response: str
    ends: bool
    kind: str
    opening: str
    complies: bool | None
    correct: bool | None
    gold: str | None
    constraints: tuple[Constraint, ...]


def corpus(world: MicroWorld, seed: int, phase: Literal["drill", "mixed"] = "mixed") -> Iterator[Example]:
    """An endless stream of examples, the same for the same seed on every platform. No evaluation prompt occurs.

    Args:
      world: the distribution.
      seed: seed of the stream; the phases of one seed are independent.
      phase: `drill` has math problems with deliberate openings and correct chains only, to learn single steps (the
        token after `=` is a result); `mixed` is the corpus proper.

    Raises:
      UserError: unknown phase.
    """
    if phase not in ("drill", "mixed"):
        raise UserError(f"corpus phase {phase!r}: use drill or mixed")
    return _stream(world, Draws(seed, 4 if phase == "drill" else 5), phase == "drill")


def _stream(world: MicroWorld, draws: Draws, drill: bool) -> Iterator[Example]:
    makers = {"math": draw_math, "inst": draw_instruction, "mix": draw_mix}
    while True:
        kind = "math" if drill else draws.weighted(world.corpus)
        prompt = makers[kind](draws, world)
        if split_of(prompt.text) == "evaluation":
            continue
        if drill:
            parts, _ = _solve(draws, prompt, chained=True, step_error=0.0)
            response = write_solution(draws, Plan(), draws.pick(OPENINGS["DRI"]).split(), parts)
            assert response is not None  # an empty plan always fits
            yield _finish(prompt, response, True, "math", "DRI", None, True)
        else:
            yield _example(draws, world, kind, prompt)


def _example(draws: Draws, world: MicroWorld, kind: str, prompt: Prompt) -> Example:
    openings = world.instruction_openings if kind == "inst" else world.openings
    opening = draws.weighted(openings)
    if opening == "rambling":
        response = _ramble(draws, prompt.topic or "it", world.max_response)
        return _finish(prompt, response, False, kind, "rambling", None, None)
    ending = [item for item in openings if item[0] != "rambling"]
    complies = draws.chance(world.compliance) if prompt.constraints else None
    for attempt in range(2 * _TRIES):
        # Constraints may leave no room for this opening: draw another one, and at last none.
        if attempt:
            opening = draws.weighted(ending) if attempt < _TRIES else "none"
        words = draws.pick(OPENINGS[opening]).split() if opening != "none" else []
        plan = _plan(draws, prompt.constraints, complies)
        if prompt.problem is None:
            correct = None
            response = write_text(draws, plan, words, topic_subject(prompt.topic or ""))
        else:
            chained = opening == "DRI" or (opening == "neutral" and draws.chance(world.neutral_chain))
            parts, correct = _solve(draws, prompt, chained, world.step_error)
            response = write_solution(draws, plan, words, parts)
        if response is not None and len(response) < world.max_response:
            return _finish(prompt, response, True, kind, opening, complies, correct)
    raise AssertionError(f"no response fits {prompt.text!r}")


def _finish(
    prompt: Prompt,
    response: list[str],
    ends: bool,
    kind: str,
    opening: str,
    complies: bool | None,
    correct: bool | None,
) -> Example:
    text = " ".join(response)
    return Example(prompt.text, text, ends, kind, opening, complies, correct, prompt.gold, prompt.constraints)


def _plan(draws: Draws, constraints: Sequence[Constraint], complies: bool | None) -> Plan:
    """All constraints kept, or a random non-empty subset broken."""
    if complies or not constraints:
        return make_plan(draws, constraints, ())
    order = draws.shuffled(constraints)
    broken = draws.between(1, len(order))
    return make_plan(draws, order[broken:], order[:broken])


def _solve(draws: Draws, prompt: Prompt, chained: bool, step_error: float) -> tuple[list[list[str]], bool]:
    """The parts of a solution, and whether its answer is right. A direct answer is always right."""
    assert prompt.problem is not None
    truth = answer(prompt.problem)
    if not chained:
        return [[*box(truth), "."]], True
    (first, second), digits = chain(prompt.problem, draws, step_error)
    return [first, [*second, "."], [*FINAL, *box(digits), "."]], digits == truth


def _ramble(draws: Draws, topic: str, length: int) -> list[str]:
    """Exactly `length` tokens of a sentence that never ends."""
    tokens = ["Many", "people", draws.pick(RAMBLING_VERBS), "about", topic]
    while len(tokens) < length:
        link = draws.pick((("and", "then"), (",", "and"), ("so", "then"), ("and", "again")))
        about = draws.pick(TOPICS) if draws.chance(0.5) else topic
        tokens += [*link, "they", draws.pick(RAMBLING_VERBS), "about", about]
    return tokens[:length]
