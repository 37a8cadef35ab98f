"""Prompts of the micro world as benchmark rows, and the split that keeps training and evaluation apart."""

import hashlib
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Literal

from vsr_jax.data.micro.draws import Draws
from vsr_jax.data.micro.instructions import Constraint, draw_constraints
from vsr_jax.data.micro.math import QUESTION, Problem, answer, answer_tokens, draw_problem, statement
from vsr_jax.data.micro.vocabulary import TOPICS
from vsr_jax.data.micro.world import MicroWorld
from vsr_jax.data.rows import Row

Split = Literal["train", "evaluation"]
BOX_WORDS = 5  # `\\boxed{ <1> 5 <2> 6 }`
_EVALUATION_SHARE = 8


@dataclass(frozen=True)
class Prompt:
    """A prompt with what made it: a problem, a topic, or a problem with constraints."""

    text: str
    problem: Problem | None = None
    topic: str | None = None
    constraints: tuple[Constraint, ...] = ()

    @property
    def gold(self) -> str | None:
        """The reference answer, such as `<1> 5 <2> 6`; None without a problem."""
        return " ".join(answer_tokens(answer(self.problem))) if self.problem else None


def split_of(text: str) -> Split:
    """The split that a prompt belongs to: one prompt text in eight, by its hash, is for evaluation only.

    The corpus and every training row come from the other seven eighths, so no seed can make them overlap.
    """
    return "evaluation" if hashlib.sha256(text.encode()).digest()[0] % _EVALUATION_SHARE == 0 else "train"


def draw_math(draws: Draws, world: MicroWorld) -> Prompt:
    """A math problem."""
    problem = draw_problem(draws, world.operations, world.operators)
    return Prompt(" ".join([*statement(problem), *QUESTION]), problem)


def draw_instruction(draws: Draws, world: MicroWorld) -> Prompt:
    """`Write about ...` with constraints."""
    topic = draws.pick(TOPICS)
    constraints = draw_constraints(draws, world.constraints, draws.pick(world.instruction_counts), 1)
    return Prompt(" ".join([f"Write about {topic} .", *(c.sentence for c in constraints)]), None, topic, constraints)


def draw_mix(draws: Draws, world: MicroWorld) -> Prompt:
    """A math problem with constraints before or after it."""
    problem = draw_problem(draws, world.mix_operations, world.operators)
    constraints = draw_constraints(draws, world.constraints, draws.pick(world.mix_counts), BOX_WORDS)
    question = " ".join([*statement(problem), *QUESTION])
    asked = " ".join(c.sentence for c in constraints)
    first = draws.chance(world.constraints_first)
    return Prompt(f"{asked} {question}" if first else f"{question} {asked}", problem, None, constraints)


def draw_pool(draws: Draws, world: MicroWorld) -> Prompt:
    """A prompt of the instruction pool: mix or not by `mix_share`."""
    return draw_mix(draws, world) if draws.chance(world.mix_share) else draw_instruction(draws, world)


def math_rows(
    world: MicroWorld, seed: int, n: int, *, split: Split = "train", exclude: Container[str] = ()
) -> list[Row]:
    """`n` math rows with different prompts.

    Args:
      world: the distribution.
      seed: the same seed gives the same rows on every platform, and a longer list begins with the shorter one.
      n: how many.
      split: train and evaluation prompts are disjoint by construction, see `split_of`.
      exclude: prompt texts to leave out as well.
    """
    return _rows(draw_math, "math", world, seed, n, split, exclude)


def instruction_rows(
    world: MicroWorld, seed: int, n: int, *, split: Split = "train", exclude: Container[str] = ()
) -> list[Row]:
    """`n` instruction rows with different prompts, `mix_share` of them on math problems; see `math_rows`.

    Only the constraints are checked; `gold` is kept on mix rows for analysis.
    """
    return _rows(draw_pool, "instructions", world, seed, n, split, exclude)


def joint_rows(
    world: MicroWorld, seed: int, n: int, *, split: Split = "train", exclude: Container[str] = ()
) -> list[Row]:
    """`n` mix rows, checked for answer and constraints together; see `math_rows`."""
    return _rows(draw_mix, "joint", world, seed, n, split, exclude)


def _rows(
    draw: Callable[[Draws, MicroWorld], Prompt],
    task: Literal["math", "instructions", "joint"],
    world: MicroWorld,
    seed: int,
    n: int,
    split: Split,
    exclude: Container[str],
) -> list[Row]:
    draws = Draws(seed, {"math": 1, "instructions": 2, "joint": 3}[task])
    rows: dict[str, Row] = {}
    while len(rows) < n:
        prompt = draw(draws, world)
        if split_of(prompt.text) == split and prompt.text not in rows and prompt.text not in exclude:
            rows[prompt.text] = _row(f"micro-{task}-{split}-{seed}-{len(rows)}", task, prompt)
    return list(rows.values())


def _row(row_id: str, task: Literal["math", "instructions", "joint"], prompt: Prompt) -> Row:
    ids = tuple(c.instruction_id for c in prompt.constraints)
    kwargs = tuple(c.kwargs for c in prompt.constraints)
    return Row(row_id, prompt.text, task, prompt.gold, ids, kwargs)
