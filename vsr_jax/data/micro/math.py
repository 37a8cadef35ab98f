"""Math problems on two registers of single digits, and chains that solve them."""

from dataclasses import dataclass

from vsr_jax.data.micro.draws import Draws
from vsr_jax.data.micro.world import Operations

QUESTION = ("What", "is", "the", "result", "?")
FINAL = ("The", "final", "answer", "is")


@dataclass(frozen=True)
class Register:
    """A first digit and the operations applied to it in order, each (operator, operand)."""

    start: int
    steps: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Problem:
    """Two registers; the answer is both last digits."""

    registers: tuple[Register, Register]


def apply(operator: str, left: int, right: int) -> int:
    """The last digit of `left operator right`."""
    value = {"+": left + right, "-": left - right, "x": left * right}[operator]
    return value % 10


def draw_problem(draws: Draws, operations: Operations, operators: tuple[str, ...]) -> Problem:
    """A problem whose numbers of operations follow `operations`; digits are uniform on 1 to 9."""
    first, second = draws.weighted(operations)

    def register(count: int) -> Register:
        return Register(draws.between(1, 9), tuple((draws.pick(operators), draws.between(1, 9)) for _ in range(count)))

    return Problem((register(first), register(second)))


def statement(problem: Problem) -> list[str]:
    """The tokens of the problem without its question: `[1] 4 (1) + 3 (2) - 2 . [2] 7 (3) x 3 .`"""
    tokens, mark = [], 0
    for index, register in enumerate(problem.registers, 1):
        tokens += [f"[{index}]", str(register.start)]
        for operator, operand in register.steps:
            mark += 1
            tokens += [f"({mark})", operator, str(operand)]
        tokens.append(".")
    return tokens


def answer(problem: Problem) -> tuple[int, int]:
    """The true last digits of both registers."""
    digits = []
    for register in problem.registers:
        value = register.start
        for operator, operand in register.steps:
            value = apply(operator, value, operand)
        digits.append(value)
    return digits[0], digits[1]


def answer_tokens(digits: tuple[int, int]) -> list[str]:
    """`<1> 5 <2> 6`, the form of the gold answer and of the content of the box."""
    return ["<1>", str(digits[0]), "<2>", str(digits[1])]


def box(digits: tuple[int, int]) -> list[str]:
    """The boxed answer."""
    return ["\\boxed{", *answer_tokens(digits), "}"]


def chain(problem: Problem, draws: Draws, step_error: float) -> tuple[list[list[str]], tuple[int, int]]:
    """A worked solution.

    Args:
      problem: what to solve.
      draws: source of errors.
      step_error: probability that a step writes a wrong digit, which later steps then use.

    Returns:
      The tokens of each register, such as `[1] 4 (1) + 3 = 7 <1> 7`, and the digits that the chain ends with.
    """
    parts, digits, mark = [], [], 0
    for index, register in enumerate(problem.registers, 1):
        value = register.start
        tokens = [f"[{index}]", str(value)]
        for operator, operand in register.steps:
            mark += 1
            value = apply(operator, value, operand)
            if draws.chance(step_error):
                value = (value + draws.between(1, 9)) % 10
            tokens += [f"({mark})", operator, str(operand), "=", str(value)]
        parts.append([*tokens, f"<{index}>", str(value)])
        digits.append(value)
    return parts, (digits[0], digits[1])
