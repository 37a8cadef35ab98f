r"""Exact numbers: quotients of sums of rational multiples of products of atoms.

Atoms are primes with an exponent in (0, 1), which spell surds; `i`, with i^2 = -1; `pi` and `e`; and opaque values such
as `sin(1)` or a nested root. Real roots of distinct square-free products are linearly independent over the rationals,
also with i adjoined, so a sum without opaque atoms is zero exactly when it has no terms: equality is decided, not
estimated. (That pi and e satisfy no common algebraic equation is taken for granted.)

Every size is bounded before it is computed; what would pass a bound raises `TooBig`.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

MAX_BITS = 40_000  # of any numerator or denominator: about 12,000 digits
MAX_TERMS = 300
MAX_FACTORIAL = 3_000
_PAIR_COST = 8  # microseconds to multiply two terms
_TRIAL_LIMIT = 10_000
_MAX_PRIME_BITS = 4_000
_ONE = Fraction(1)

Monomial = tuple[tuple[str, Fraction], ...]


class TooBig(Exception):
    """The value, or the work towards it, passes a bound."""


class Undefined(Exception):
    """Division by zero, the logarithm of zero, and the like."""


class Budget:
    """Work that one comparison may spend, and what was seen on the way.

    Attributes:
      left: remaining units of work, about a microsecond each.
      bits: the largest numerator or denominator seen, for the precision of numeric checks.
      opaque: an opaque atom was made, so that unequal forms may still be equal values.
    """

    def __init__(self, left: int = 60_000):
        self.left = left
        self.bits = 0
        self.opaque = False

    def spend(self, work: int) -> None:
        """Takes from the budget.

        Raises:
          TooBig: nothing is left.
        """
        self.left -= work
        if self.left < 0:
            raise TooBig

    def check(self, value: Fraction) -> Fraction:
        """`value`, when its size is within bounds."""
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        if bits > MAX_BITS:
            raise TooBig
        self.bits = max(self.bits, bits)
        self.spend(1 + (bits >> 9) ** 2)
        return value


Sum = Mapping[Monomial, Fraction]  # no zero coefficients


class Exact(NamedTuple):
    """A quotient of two sums; the denominator is never zero."""

    top: Sum
    bottom: Sum


ONE: Sum = {(): _ONE}


def rational(value: Fraction) -> Exact:
    """A rational number."""
    return Exact({(): value} if value else {}, ONE)


def atom(name: str) -> Exact:
    """A single atom, such as `pi`."""
    return Exact({((name, _ONE),): _ONE}, ONE)


def as_rational(value: Exact) -> Fraction | None:
    """The rational number that a value is, when it is plainly one."""
    if not value.top:
        return Fraction(0)
    if len(value.top) == 1 and () in value.top and value.bottom == ONE:
        return value.top[()]
    return None


def spell(value: Exact) -> str:
    """A canonical text: equal values without opaque atoms and with single-term denominators have equal texts."""
    return f"{_spell_sum(value.top)}/{_spell_sum(value.bottom)}"


def _spell_sum(terms: Sum) -> str:
    if sum(c.numerator.bit_length() + c.denominator.bit_length() for c in terms.values()) > 8_000:
        raise TooBig
    return "+".join(sorted(f"{c}*" + "*".join(f"{n}^{e}" for n, e in m) for m, c in terms.items())) or "0"


def add(a: Exact, b: Exact, budget: Budget) -> Exact:
    """The sum."""
    if a.bottom == b.bottom:
        return _reduced(_add(a.top, b.top, budget), a.bottom)
    top = _add(_mul(a.top, b.bottom, budget), _mul(b.top, a.bottom, budget), budget)
    return _reduced(top, _mul(a.bottom, b.bottom, budget))


def negate(a: Exact) -> Exact:
    """The negative."""
    return Exact({m: -c for m, c in a.top.items()}, a.bottom)


def multiply(a: Exact, b: Exact, budget: Budget) -> Exact:
    """The product."""
    return _reduced(_mul(a.top, b.top, budget), _mul(a.bottom, b.bottom, budget))


def divide(a: Exact, b: Exact, budget: Budget) -> Exact:
    """The quotient.

    Raises:
      Undefined: `b` is zero.
    """
    if not b.top:
        raise Undefined
    if len(b.top) == 1:  # a single term inverts exactly
        ((monomial, coefficient),) = b.top.items()
        inverse, factor = _reduce_monomial([(n, -e) for n, e in monomial], budget)
        b_inverse = {inverse: budget.check(factor / coefficient)}
        return _reduced(_mul(_mul(a.top, b.bottom, budget), b_inverse, budget), a.bottom)
    return _reduced(_mul(a.top, b.bottom, budget), _mul(a.bottom, b.top, budget))


def is_zero(a: Exact) -> bool:
    """Whether the form is zero."""
    return not a.top


def is_real(a: Exact) -> bool:
    """Whether no term holds i."""
    return not any(name == "i" for part in a for monomial in part for name, _ in monomial)


def power(base: Exact, exponent: Fraction, budget: Budget) -> Exact:
    """A rational power; the real root for an odd root of a negative number, as in print.

    Raises:
      TooBig: the result has too many digits.
      Undefined: zero to a negative power.
    """
    if exponent.denominator == 1:
        return _integer_power(base, exponent.numerator, budget)
    if not base.top:
        if exponent < 0:
            raise Undefined
        return base
    value = as_rational(base)
    if value is not None:
        return _rational_power(value, exponent, budget)
    if _is_monomial(base) and all(
        name[0] == "#" or name in ("pi", "e") for monomial in base.top for name, _ in monomial
    ):
        ((monomial, coefficient),) = base.top.items()
        scaled, factor = _reduce_monomial([(name, power * exponent) for name, power in monomial], budget)
        return multiply(Exact({scaled: factor}, ONE), _rational_power(coefficient, exponent, budget), budget)
    whole = exponent.numerator // exponent.denominator
    rest = exponent - whole
    budget.opaque = True
    root = Exact({((f"[{spell(base)}]", rest),): _ONE}, ONE)
    return multiply(_integer_power(base, whole, budget), root, budget)


def _integer_power(base: Exact, exponent: int, budget: Budget) -> Exact:
    if exponent < 0:
        return divide(rational(_ONE), _integer_power(base, -exponent, budget), budget)
    value = as_rational(base)
    if value is not None:
        bits = max(abs(value.numerator), value.denominator).bit_length()
        if value not in (0, 1, -1) and bits * exponent > MAX_BITS + bits:
            raise TooBig
        return rational(budget.check(value ** (exponent if value not in (1, -1) else exponent % 2)))
    if _is_monomial(base):
        ((monomial, coefficient),) = base.top.items()
        scaled, factor = _reduce_monomial([(name, power * exponent) for name, power in monomial], budget)
        return multiply(Exact({scaled: factor}, ONE), _integer_power(rational(coefficient), exponent, budget), budget)
    if exponent > MAX_BITS:
        raise TooBig
    result = rational(_ONE)
    while exponent:
        if exponent & 1:
            result = multiply(result, base, budget)
        exponent >>= 1
        if exponent:
            base = multiply(base, base, budget)
    return result


def _is_monomial(value: Exact) -> bool:
    return len(value.top) == 1 and value.bottom == ONE


def _rational_power(value: Fraction, exponent: Fraction, budget: Budget) -> Exact:
    result = rational(_ONE)
    if value < 0:
        value = -value
        if exponent.denominator == 2:
            result = _integer_power(atom("i"), exponent.numerator, budget)
        elif exponent.denominator % 2 == 1:
            result = rational(Fraction((-1) ** (exponent.numerator % 2)))
        else:
            budget.opaque = True
            result = atom(f"(-1)^{exponent}")
    parts: list[tuple[str, Fraction]] = []
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        parts += [(f"#{prime}", sign * count * exponent) for prime, count in _factor(number, budget).items()]
    monomial, coefficient = _reduce_monomial(parts, budget)
    return multiply(result, Exact({monomial: coefficient}, ONE), budget)


def _factor(number: int, budget: Budget) -> dict[int, int]:
    """Prime factors. A large part without small factors stays whole, and marks the result as opaque."""
    factors: dict[int, int] = {}
    divisor = 2
    budget.spend(1 + (number.bit_length() >> 2))
    while divisor * divisor <= number and divisor < _TRIAL_LIMIT:
        while number % divisor == 0:
            factors[divisor] = factors.get(divisor, 0) + 1
            number //= divisor
        divisor += 1 if divisor == 2 else 2
    if number > 1:
        if number >= _TRIAL_LIMIT**2:
            root = math.isqrt(number)
            if root * root == number:
                factors[root] = 2
                return factors
            if number.bit_length() > _MAX_PRIME_BITS:
                raise TooBig
            budget.opaque = True
        factors[number] = factors.get(number, 0) + 1
    return factors


def _reduce_monomial(parts: list[tuple[str, Fraction]], budget: Budget) -> tuple[Monomial, Fraction]:
    """Joins equal atoms; whole powers of primes and of i move into the coefficient."""
    exponents: dict[str, Fraction] = {}
    for name, exponent in parts:
        exponents[name] = exponents.get(name, Fraction(0)) + exponent
    coefficient = _ONE
    kept = []
    for name, exponent in exponents.items():
        if name[0] == "#":
            whole = exponent.numerator // exponent.denominator
            if whole:
                prime = int(name[1:])
                if prime.bit_length() * abs(whole) > MAX_BITS:
                    raise TooBig
                coefficient = budget.check(coefficient * Fraction(prime) ** whole)
                exponent -= whole
        elif name == "i":
            quarter = int(exponent) % 4
            coefficient = -coefficient if quarter > 1 else coefficient
            exponent = Fraction(quarter % 2)
        if exponent:
            kept.append((name, exponent))
    return tuple(sorted(kept)), coefficient


def _add(a: Sum, b: Sum, budget: Budget) -> Sum:
    result = dict(a)
    for monomial, coefficient in b.items():
        total = budget.check(result.get(monomial, Fraction(0)) + coefficient)
        if total:
            result[monomial] = total
        else:
            result.pop(monomial, None)
    if len(result) > MAX_TERMS:
        raise TooBig
    return result


def _mul(a: Sum, b: Sum, budget: Budget) -> Sum:
    if a is ONE:
        return b
    if b is ONE:
        return a
    budget.spend(_PAIR_COST * len(a) * len(b))
    result: dict[Monomial, Fraction] = {}
    for left, c in a.items():
        for right, d in b.items():
            product = budget.check(c * d)
            if left and right:
                monomial, factor = _reduce_monomial([*left, *right], budget)
                product *= factor
            else:
                monomial = left or right
            total = result.get(monomial, Fraction(0)) + product
            if total:
                result[monomial] = total
            else:
                result.pop(monomial, None)
    if len(result) > MAX_TERMS:
        raise TooBig
    return result


def _reduced(top: Sum, bottom: Sum) -> Exact:
    """Moves a rational denominator into the numerator."""
    if bottom == ONE:
        return Exact(top, ONE)
    if len(bottom) == 1 and () in bottom:
        divisor = bottom[()]
        return Exact({m: c / divisor for m, c in top.items()}, ONE)
    return Exact(top, bottom)
