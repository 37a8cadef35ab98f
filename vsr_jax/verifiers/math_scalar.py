"""Equality and order of scalar expressions."""

from fractions import Fraction
from typing import TYPE_CHECKING

from vsr_jax.verifiers import math_exact as exact
from vsr_jax.verifiers.math_exact import Budget, Undefined
from vsr_jax.verifiers.math_node import Node
from vsr_jax.verifiers.math_value import NotScalar, Point, evaluate, names

if TYPE_CHECKING:
    from vsr_jax.verifiers.math_numeric import Numeric

# One column a free name, in alphabetical order. All positive, all negative (which tells the root of a square from the
# number), and fractions (which tell a power from a root).
_ROWS = (
    (101, 211, 307, 401, 503, 601, 701, 809, 907, 1009, 1103, 1201),
    (-103, -223, -311, -409, -509, -607, -709, -811, -911, -1013, -1109, -1213),
    (107, 227, 313, 419, 521, 613, 719, 821, 919, 1019, 1117, 1217),
)
_DIVISORS = (1, 1, 3)


def points(free: set[str]) -> list[Point]:
    """The points at which expressions with these free names are compared; too many names give none."""
    if not free:
        return [{}]
    if len(free) > len(_ROWS[0]):
        return []
    ordered = sorted(free)
    return [
        {name: Fraction(row[i], divisor) for i, name in enumerate(ordered)}
        for row, divisor in zip(_ROWS, _DIVISORS, strict=True)
    ]


def equal(a: Node, b: Node, budget: Budget) -> bool:
    """Whether two scalar expressions are the same number or the same function of their free names.

    Expressions without free names are compared exactly; where roots of roots or transcendental functions make the
    exact form undecided, to a number of digits that grows with the numbers involved. Expressions with free names are
    compared so at three points; points where both are non-real are skipped unless an expression names i.

    Raises:
      NotScalar: a side is not a scalar.
      TooBig: a bound is passed.
    """
    imaginary = _mentions_i(a) or _mentions_i(b)
    agreed = False
    for point in points(names(a) | names(b)):
        try:
            verdict = _equal_at(a, b, point, budget, skip_complex=bool(point) and not imaginary)
        except Undefined:
            continue
        if verdict is False:
            return False
        agreed = agreed or verdict is True
    return agreed


def _equal_at(a: Node, b: Node, point: Point, budget: Budget, skip_complex: bool) -> bool | None:
    """The verdict at one point, None where it says nothing."""
    budget.opaque = False
    left, right = evaluate(a, point, budget), evaluate(b, point, budget)
    if skip_complex and not budget.opaque and not exact.is_real(left) and not exact.is_real(right):
        return None
    if left == right or exact.is_zero(exact.add(left, exact.negate(right), budget)):
        return True
    if not budget.opaque:
        return False
    try:
        return _equal_digits(a, b, point, budget, skip_complex)
    except NotScalar:  # an unknown function: only its exact form can be compared
        return False


def _equal_digits(a: Node, b: Node, point: Point, budget: Budget, skip_complex: bool) -> bool | None:
    """As `_equal_at`, to a number of digits."""
    coarse = _numeric(budget)
    x, y = coarse.evaluate(a, point), coarse.evaluate(b, point)
    if skip_complex and not coarse.is_real(x) and not coarse.is_real(y):
        return None
    if coarse.agree(x, y):
        return True
    if not (coarse.is_tiny(x) and coarse.is_tiny(y)):
        return False
    # Tiny values are rounding errors of zero if they move with the precision, and numbers of their own if they stay.
    fine = _numeric(budget, 2)
    finer = fine.evaluate(a, point), fine.evaluate(b, point)
    zero = [not coarse.agree_roughly(old, new) for old, new in zip((x, y), finer, strict=True)]
    return all(zero) or (not any(zero) and coarse.agree(*finer))


def _numeric(budget: Budget, factor: int = 1) -> "Numeric":
    """Evaluation to many bits; imported where first needed, since most answers never need it."""
    from vsr_jax.verifiers.math_numeric import Numeric

    return Numeric(budget, factor)


def _mentions_i(node: Node) -> bool:
    stack = [node]
    while stack:
        current = stack.pop()
        if current == Node("const", ("i",)):
            return True
        stack.extend(current.children())
    return False


def compare(a: Node, b: Node, budget: Budget) -> int:
    """-1, 0 or 1 as the real number `a` is below, at or above `b`; infinities are allowed.

    Raises:
      NotScalar: a side is no real number.
      TooBig, Undefined: as in evaluation.
    """
    infinities = (infinity(a), infinity(b))
    if any(infinities):
        return (infinities[0] > infinities[1]) - (infinities[0] < infinities[1])
    if names(a) | names(b):
        raise NotScalar("a free name has no order")
    if equal(a, b, budget):
        return 0
    difference = Node("add", (a, Node("neg", (b,))))
    value = exact.as_rational(evaluate(difference, {}, budget))
    if value is not None:
        return 1 if value > 0 else -1
    numeric = _numeric(budget)
    result = numeric.evaluate(difference, {})
    if not numeric.is_real(result):
        raise NotScalar("complex")
    return numeric.sign(result)


def infinity(node: Node) -> int:
    """1 or -1 for an infinity, else 0."""
    if node == Node("const", ("inf",)):
        return 1
    return -infinity(node.args[0]) if node.op == "neg" else 0
