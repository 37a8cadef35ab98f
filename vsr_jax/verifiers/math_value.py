"""The exact value of a tree at a point, which gives each free name a rational number."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from vsr_jax.verifiers import math_exact as exact
from vsr_jax.verifiers.math_exact import MAX_FACTORIAL, Budget, Exact, TooBig, Undefined
from vsr_jax.verifiers.math_node import CALLABLE, Node

Point = Mapping[str, Fraction]


class NotScalar(Exception):
    """A set, a point, a relation or infinity stands where a number is needed."""


def names(node: Node) -> set[str]:
    """The free names of a tree, applied functions such as f included."""
    found: set[str] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current.op == "sym" or (current.op == "fn" and current.args[0] in CALLABLE):
            found.add(current.args[0])
        stack.extend(current.children())
    return found


def evaluate(node: Node, point: Point, budget: Budget) -> Exact:
    """The exact value of a scalar tree.

    Raises:
      NotScalar: the tree is not a number.
      Undefined: it has no value at this point.
      TooBig: a bound is passed.
    """
    budget.spend(1)
    op, args = node
    if op == "num":
        return exact.rational(budget.check(args[0]))
    if op == "sym":
        return exact.rational(point[args[0]])
    if op == "const":
        return _constant(args[0])
    if op == "base":
        return exact.rational(Fraction(int(*args)))
    if op == "fn":
        return _function(args[0], [evaluate(argument, point, budget) for argument in args[1:]], budget)
    if op not in _OPERATIONS:
        raise NotScalar(op)
    rule = _OPERATIONS[op]
    value = evaluate(args[0], point, budget)
    if op in _MARKS:
        return rule(value, budget)
    for argument in args[1:]:
        value = rule(value, evaluate(argument, point, budget), budget)
    return value


def _constant(name: str) -> Exact:
    if name == "inf":
        raise NotScalar(name)
    return exact.atom(name)


def _power(base: Exact, exponent: Exact, budget: Budget) -> Exact:
    value = exact.as_rational(exponent)
    if value is not None:
        return exact.power(base, value, budget)
    budget.opaque = True
    return exact.atom(f"[{exact.spell(base)}]^[{exact.spell(exponent)}]")


_PERCENT = exact.rational(Fraction(1, 100))
_DEGREE = Exact({(("pi", Fraction(1)),): Fraction(1, 180)}, exact.ONE)
_MARKS = frozenset(["neg", "unit", "pct", "deg"])
_OPERATIONS: dict[str, Callable[..., Exact]] = {
    "add": exact.add,
    "mul": exact.multiply,
    "div": exact.divide,
    "pow": _power,
    "neg": lambda value, budget: exact.negate(value),
    "unit": lambda value, budget: value,
    "pct": lambda value, budget: exact.multiply(value, _PERCENT, budget),
    "deg": lambda value, budget: exact.multiply(value, _DEGREE, budget),
}


def _function(name: str, values: list[Exact], budget: Budget) -> Exact:
    numbers = [exact.as_rational(value) for value in values]
    if all(number is not None for number in numbers):
        value = _rational_function(name, [number for number in numbers if number is not None], budget)
        if value is not None:
            return exact.rational(budget.check(value))
    if name == "exp":
        return _power(exact.atom("e"), values[0], budget)
    if name in ("log", "ln") and len(values) == 1 and values[0] == exact.atom("e"):
        return exact.rational(Fraction(1)) if name == "ln" else _opaque(name, values, budget)
    return _opaque(name, values, budget)


def _opaque(name: str, values: list[Exact], budget: Budget) -> Exact:
    budget.opaque = True
    return exact.atom(f"{name}({','.join(exact.spell(value) for value in values)})")


def _rational_function(name: str, values: list[Fraction], budget: Budget) -> Fraction | None:
    """A function of rational numbers whose value is rational, else None."""
    first = values[0]
    whole = all(value.denominator == 1 for value in values)
    if name == "abs":
        return abs(first)
    if name in ("floor", "ceil"):
        return Fraction(math.floor(first) if name == "floor" else math.ceil(first))
    if name in ("min", "max"):
        return min(values) if name == "min" else max(values)
    if name in ("gcd", "lcm") and whole:
        integers = [value.numerator for value in values]
        return Fraction(math.gcd(*integers) if name == "gcd" else math.lcm(*integers))
    if name == "factorial":
        if not whole or first < 0:
            raise Undefined
        if first > MAX_FACTORIAL:
            raise TooBig
        budget.spend(int(first))
        return Fraction(math.factorial(int(first)))
    if name == "binom":
        if not whole or min(values) < 0:
            raise Undefined
        if values[0] > MAX_FACTORIAL:
            raise TooBig
        budget.spend(int(first))
        return Fraction(math.comb(int(first), int(values[1])))
    if name in ("log", "ln"):
        if first == 0:
            raise Undefined
        if first == 1:
            return Fraction(0)
        if len(values) == 2 or name == "log":
            return _logarithm(first, values[1] if len(values) == 2 else Fraction(10))
    return None


def _logarithm(value: Fraction, base: Fraction) -> Fraction | None:
    """An integer logarithm of an integer or of its inverse, else None."""
    if base.denominator != 1 or base < 2 or value <= 0:
        return None
    sign = 1
    if value < 1:
        value, sign = 1 / value, -1
    count = 0
    while value > 1 and value.denominator == 1 and value.numerator % base.numerator == 0:
        value /= base
        count += 1
        if count > 2_000:
            raise TooBig
    return Fraction(sign * count) if value == 1 else None
