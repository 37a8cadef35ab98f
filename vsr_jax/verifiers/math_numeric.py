"""Values to many digits, for expressions whose equality the exact form cannot decide."""

from fractions import Fraction
from typing import Any

from vsr_jax.verifiers.math_exact import MAX_FACTORIAL, Budget, TooBig, Undefined
from vsr_jax.verifiers.math_node import Node
from vsr_jax.verifiers.math_value import NotScalar, Point

_MAX_DIGITS = 1_500
_MAX_EXPONENT = 10**5  # of e, so that no result needs more than a few machine words of exponent
_MAX_ANGLE = 10**40
_SAME_NAME = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "exp", "ln")
_INVERSE = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot"}


class Numeric:
    """Evaluation with a number of digits, in a context of its own: nothing is shared between threads.

    Args:
      budget: knows the largest rational seen in exact evaluation. Precision grows with its size, so that two values
        that differ in the last digit of such a number stay apart.

    Raises:
      TooBig: so many digits are out of bounds.
    """

    def __init__(self, budget: Budget):
        from mpmath import MPContext

        self.digits = 50 + int(0.9 * budget.bits)
        self.budget = budget
        if self.digits > _MAX_DIGITS:
            raise TooBig
        self.context = MPContext()
        self.context.dps = self.digits + 20

    def equal(self, a: Any, b: Any) -> bool:
        """Whether two values agree to all digits; both near zero counts as equal."""
        mp = self.context
        scale = max(abs(a), abs(b))
        unit = mp.mpf(10) ** -self.digits
        return scale < unit or abs(a - b) <= scale * unit

    def real(self, value: Any) -> bool:
        """Whether the imaginary part vanishes."""
        return abs(value.imag) <= abs(value) * self.context.mpf(10) ** -self.digits

    def evaluate(self, node: Node, point: Point) -> Any:
        """The value as a complex number.

        Raises:
          NotScalar, Undefined, TooBig: as in exact evaluation.
        """
        try:
            return self._evaluate(node, point)
        except (ArithmeticError, ValueError) as error:  # poles
            raise Undefined from error

    def _evaluate(self, node: Node, point: Point) -> Any:
        mp = self.context
        op, args = node
        self.budget.spend(5 + self.digits // 20)
        if op == "num":
            return self.rational(args[0])
        if op == "sym":
            return self.rational(point[args[0]])
        if op == "const":
            if args[0] == "inf":
                raise NotScalar
            return {"pi": mp.mpf(mp.pi), "e": mp.mpf(mp.e), "i": mp.mpc(0, 1)}[args[0]]
        if op == "base":
            return mp.mpf(int(*args))
        values = [self._evaluate(argument, point) for argument in args if isinstance(argument, Node)]
        if op == "fn":
            return self.function(args[0], values)
        if op == "add":
            return mp.fsum(values)
        if op == "mul":
            return mp.fprod(values)
        if op == "div":
            if not values[1]:
                raise Undefined
            return values[0] / values[1]
        if op == "pow":
            return self.power(values[0], values[1], args[1])
        if op in ("neg", "unit", "pct", "deg"):
            return values[0] * {"neg": -1, "unit": 1, "pct": mp.mpf(1) / 100, "deg": mp.pi / 180}[op]
        raise NotScalar(op)

    def rational(self, value: Fraction) -> Any:
        """A rational number."""
        return self.context.mpf(value.numerator) / value.denominator

    def power(self, base: Any, exponent: Any, exponent_node: Node) -> Any:
        """A power; odd roots of negative numbers are real."""
        mp = self.context
        if not base:
            if exponent.real <= 0:
                raise Undefined
            return base
        self.bound(exponent * mp.log(base), _MAX_EXPONENT)
        root = _odd_root(exponent_node)
        if root and not base.imag and base.real < 0:
            return -mp.root(-base.real, root)
        return mp.power(base, exponent)

    def bound(self, value: Any, limit: int) -> None:
        """Refuses arguments whose function would need too many digits."""
        if abs(value) > limit:
            raise TooBig

    def function(self, name: str, values: list[Any]) -> Any:
        """A named function."""
        mp, first = self.context, values[0]
        self.budget.spend(20 + self.digits)
        if name in ("cot", "csc", "ln", "log") and not first:
            raise Undefined
        if name == "log":
            base = values[1] if len(values) > 1 else mp.mpf(10)
            if not base or base == 1:
                raise Undefined
            return mp.log(first) / mp.log(base)
        if name in _SAME_NAME:
            self.bound(first, _MAX_EXPONENT if name in ("sinh", "cosh", "tanh", "exp") else _MAX_ANGLE)
            return getattr(mp, name)(first)
        if name in _INVERSE:
            return getattr(mp, _INVERSE[name])(first)
        if name == "abs":
            return abs(first)
        if name in ("floor", "ceil"):
            return getattr(mp, name)(first.real)
        if name in ("factorial", "binom"):
            for value in values:
                self.bound(value, MAX_FACTORIAL)
            return mp.factorial(first) if name == "factorial" else mp.binomial(*values)
        raise NotScalar(name)


def _odd_root(exponent: Node) -> int:
    """n when the exponent is written 1/n with n odd, else 0."""
    if exponent.op == "div" and all(part.op == "num" for part in exponent.args):
        top, bottom = (part.args[0] for part in exponent.args)
        if top == 1 and bottom.denominator == 1 and bottom % 2 == 1 and bottom < 100:
            return int(bottom)
    return 0
