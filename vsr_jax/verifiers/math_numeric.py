"""Values to many digits, for expressions whose equality the exact form cannot decide.

Works on the raw floats of mpmath, whose functions take their precision as an argument: no context is shared between
threads, and none has to be built.
"""

from fractions import Fraction
from typing import Any

from mpmath import libmp

from vsr_jax.verifiers.math_exact import MAX_FACTORIAL, Budget, TooBig, Undefined
from vsr_jax.verifiers.math_node import Node
from vsr_jax.verifiers.math_value import NotScalar, Point

_MAX_BITS = 5_000
_MAX_EXPONENT = 17  # bits of the exponent of e: no result needs a larger exponent than a machine word
_MAX_ANGLE = 130
_FUNCTIONS = {
    "sin": libmp.mpc_sin, "cos": libmp.mpc_cos, "tan": libmp.mpc_tan, "arcsin": libmp.mpc_asin,
    "arccos": libmp.mpc_acos, "arctan": libmp.mpc_atan, "sinh": libmp.mpc_sinh, "cosh": libmp.mpc_cosh,
    "tanh": libmp.mpc_tanh, "exp": libmp.mpc_exp, "ln": libmp.mpc_log,
}  # fmt: skip
_RECIPROCALS = {"cot": "tan", "sec": "cos", "csc": "sin"}

Complex = tuple[Any, Any]  # real and imaginary part


class Numeric:
    """Evaluation to a number of bits.

    Args:
      budget: what the comparison may still spend. It also knows the largest rational seen in exact evaluation:
        precision grows with its size, so that values which differ in the last digit of such a number stay apart.
      factor: multiplies the precision.

    Raises:
      TooBig: so much precision is out of bounds.
    """

    def __init__(self, budget: Budget, factor: int = 1):
        self.bits = factor * (170 + 3 * budget.bits)
        if self.bits > _MAX_BITS:
            raise TooBig
        self.precision = self.bits + 60
        self.budget = budget

    def evaluate(self, node: Node, point: Point) -> Complex:
        """The value as a complex number.

        Raises:
          NotScalar, Undefined, TooBig: as in exact evaluation.
        """
        try:
            return self._evaluate(node, point)
        except (ArithmeticError, ValueError, NotImplementedError) as error:  # poles
            raise Undefined from error

    def agree(self, a: Complex, b: Complex) -> bool:
        """Whether two values agree in all bits, relative to the larger one."""
        return _magnitude(libmp.mpc_sub(a, b, self.precision)) < max(_magnitude(a), _magnitude(b)) - self.bits

    def agree_roughly(self, a: Complex, b: Complex) -> bool:
        """Whether two values agree in some ten bits."""
        return _magnitude(libmp.mpc_sub(a, b, self.precision)) < max(_magnitude(a), _magnitude(b)) - 10

    def is_tiny(self, value: Complex) -> bool:
        """Whether a value is so small that it may be a rounding error of zero."""
        return _magnitude(value) < -self.bits

    def is_real(self, value: Complex) -> bool:
        """Whether the imaginary part vanishes."""
        return _magnitude((value[1], libmp.fzero)) < max(_magnitude(value), 0) - self.bits

    def sign(self, value: Complex) -> int:
        """The sign of the real part."""
        return libmp.mpf_sign(value[0])

    def _evaluate(self, node: Node, point: Point) -> Complex:
        op, args = node
        self.budget.spend(5 + self.bits // 60)
        if op == "num":
            return self._rational(args[0])
        if op == "sym":
            return self._rational(point[args[0]])
        if op == "const":
            return self._constant(args[0])
        if op == "base":
            return self._rational(Fraction(int(*args)))
        values = [self._evaluate(argument, point) for argument in args if isinstance(argument, Node)]
        if op == "fn":
            value = self._function(args[0], values)
        elif op == "pow":
            value = self._power(values[0], values[1], args[1])
        elif op in ("add", "mul", "div"):
            rule = {"add": libmp.mpc_add, "mul": libmp.mpc_mul, "div": libmp.mpc_div}[op]
            value = values[0]
            for other in values[1:]:
                value = rule(value, other, self.precision)
        elif op in ("neg", "unit", "pct", "deg"):
            value = libmp.mpc_mul(values[0], self._mark(op), self.precision)
        else:
            raise NotScalar(op)
        if any(part[1] == 0 and part[2] != 0 for part in value):  # infinite or not a number
            raise Undefined
        return value

    def _rational(self, value: Fraction) -> Complex:
        return libmp.from_rational(value.numerator, value.denominator, self.precision), libmp.fzero

    def _constant(self, name: str) -> Complex:
        if name == "inf":
            raise NotScalar(name)
        if name == "i":
            return libmp.fzero, libmp.fone
        return (libmp.mpf_pi if name == "pi" else libmp.mpf_e)(self.precision), libmp.fzero

    def _mark(self, op: str) -> Complex:
        if op == "deg":
            return libmp.mpf_div(libmp.mpf_pi(self.precision), libmp.from_int(180), self.precision), libmp.fzero
        return self._rational({"neg": Fraction(-1), "unit": Fraction(1), "pct": Fraction(1, 100)}[op])

    def _power(self, base: Complex, exponent: Complex, exponent_node: Node) -> Complex:
        if base == libmp.mpc_zero:
            if libmp.mpf_sign(exponent[0]) <= 0:
                raise Undefined
            return base
        logarithm = libmp.mpc_mul(exponent, libmp.mpc_log(base, self.precision), self.precision)
        _bound(logarithm, _MAX_EXPONENT)
        root = _odd_root(exponent_node)
        if root and base[1] == libmp.fzero and libmp.mpf_sign(base[0]) < 0:  # real, as in print
            return libmp.mpf_neg(libmp.mpf_nthroot(libmp.mpf_neg(base[0]), root, self.precision)), libmp.fzero
        return libmp.mpc_pow(base, exponent, self.precision)

    def _function(self, name: str, values: list[Complex]) -> Complex:
        first, precision = values[0], self.precision
        self.budget.spend(20 + self.bits // 3)
        if name in _RECIPROCALS:
            return libmp.mpc_div(libmp.mpc_one, self._function(_RECIPROCALS[name], values), precision)
        if name in ("ln", "log") and first == libmp.mpc_zero:
            raise Undefined
        if name == "log":
            base = values[1] if len(values) > 1 else self._rational(Fraction(10))
            return libmp.mpc_div(libmp.mpc_log(first, precision), libmp.mpc_log(base, precision), precision)
        if name in _FUNCTIONS:
            if name != "ln":
                _bound(first, _MAX_ANGLE if name in ("sin", "cos", "tan") else _MAX_EXPONENT)
                _bound((first[1], libmp.fzero), _MAX_EXPONENT)
            return _FUNCTIONS[name](first, precision)
        if name == "abs":
            return libmp.mpc_abs(first, precision), libmp.fzero
        if name in ("floor", "ceil"):
            return (libmp.mpf_floor if name == "floor" else libmp.mpf_ceil)(first[0]), libmp.fzero
        if name == "factorial":
            _bound(first, MAX_FACTORIAL.bit_length())
            return libmp.mpc_factorial(first, precision)
        raise NotScalar(name)


def _magnitude(value: Complex) -> int:
    """The exponent of the next power of two above the larger part."""
    return max((part[2] + part[3] for part in value if part[1]), default=-(10**9))


def _bound(value: Complex, bits: int) -> None:
    if _magnitude(value) > bits:
        raise TooBig


def _odd_root(exponent: Node) -> int:
    """n when the exponent is written 1/n with n odd, else 0."""
    if exponent.op == "div" and all(part.op == "num" for part in exponent.args):
        top, bottom = (part.args[0] for part in exponent.args)
        if top == 1 and bottom.denominator == 1 and bottom % 2 == 1 and bottom < 100:
            return int(bottom)
    return 0
