"""The part of the answer parser that reads LaTeX macros: fractions, roots, functions, matrices."""

from fractions import Fraction

from vsr_jax.verifiers.math_cursor import Cursor, product
from vsr_jax.verifiers.math_lex import Token, key
from vsr_jax.verifiers.math_node import Node, ParseFailure
from vsr_jax.verifiers.math_vocabulary import FUNCTIONS, word_set

MAX_DIGITS = 4_000  # Python refuses to convert longer literals
# A macro and its argument are one name.
_DECORATIONS = word_set(
    """
    overline bar vec hat widehat overrightarrow tilde widetilde dot ddot underline overarc angle triangle measuredangle
    square parallel
    """
)
_LIST_FUNCTIONS = word_set("gcd lcm min max det")
_INVERTIBLE = word_set("sin cos tan cot")
_ROUNDINGS = {"lfloor": ("floor", "rfloor"), "lceil": ("ceil", "rceil")}
FACTOR_MACROS = FUNCTIONS | _DECORATIONS | word_set("frac sqrt binom pi infty lfloor lceil mathbb emptyset")


class MacroRules(Cursor):
    """Rules for macros."""

    def macro(self, name: str) -> Node:
        """A macro whose name was just read."""
        if name == "frac":
            return Node("div", (self.argument(), self.argument()))
        if name == "sqrt":
            return self.root()
        if name == "binom":
            return Node("fn", ("binom", self.argument(), self.argument()))
        if name == "pi":
            return Node("const", ("pi",))
        if name == "infty":
            return Node("const", ("inf",))
        if name in FUNCTIONS:
            return self.function(name)
        if name in _ROUNDINGS:
            function, closing = _ROUNDINGS[name]
            node = self.sum()
            self.expect(closing)
            return Node("fn", (function, node))
        if name == "emptyset":
            return Node("set", ())
        if name == "mathbb":
            letter = key(self.skip_group()).strip("{}")
            return Node("reals", ()) if letter == "R" else Node("sym", (f"mathbb {letter}",))
        if name in _DECORATIONS:
            return Node("sym", (f"{name} {key(self.skip_group()).strip('{}')}",))
        raise ParseFailure(f"macro {name}")

    def argument(self) -> Node:
        r"""A macro's argument: a group, one digit (as in `\frac12`), or one atom."""
        if self.at("{"):
            return self.braced()
        token = self.token
        if token.kind == "num" and token.value[0] != ".":
            rest = token.value[1:]
            self.tokens[self.index : self.index + 1] = [Token("num", rest, False, token.text)] if rest else []
            return integer(token.value[0])
        return self.atom()

    def root(self) -> Node:
        r"""`\sqrt{a}`, `\sqrt a`, `\sqrt(a)`, `\sqrt[n]{a}`; all digits of a bare number are under the root."""
        degree = integer("2")
        if self.at("["):
            self.advance()
            degree = self.sum()
            self.expect("]")
        radicand = self.braced() if self.at("{") else self.atom()
        return Node("pow", (radicand, Node("div", (integer("1"), degree))))

    def function(self, name: str) -> Node:
        """A named function with its power or base and its argument, in brackets or not."""
        power = base = None
        while self.token.value in ("^", "_"):
            if self.take().value == "^":
                power = self.exponent()
            else:
                base = self.exponent()
        if base is not None and name != "log":
            raise ParseFailure(f"subscript of {name}")
        if name in _LIST_FUNCTIONS:
            node = self.application(name)
        else:
            if name in _INVERTIBLE and power == Node("neg", (integer("1"),)):
                name, power = f"arc{name}", None
            argument = self.function_argument()
            node = Node("fn", (name, argument) if base is None else (name, argument, base))
        return node if power is None else Node("pow", (node, power))

    def application(self, name: str) -> Node:
        """A function of a list in parentheses."""
        self.expect("(")
        self.brackets += 1
        arguments = self.items()
        self.brackets -= 1
        self.expect(")")
        return Node("fn", (name, *(arguments.args[1:] if arguments.op == "bag" else (arguments,))))

    def function_argument(self) -> Node:
        """Brackets, or a run of factors up to a sign, a product sign or the next function."""
        if self.at("(") or self.at("{"):
            return self.atom()
        factors = [self.signed(self.factor)]
        while self.starts_factor() and self.token.value not in FUNCTIONS:
            factors.append(self.factor())
        node = product(factors)
        if self.at("/"):
            self.advance()
            node = Node("div", (node, self.factor()))
        return node

    def matrix(self, name: str) -> Node:
        r"""Rows between `\begin` and `\end`."""
        if name not in ("matrix", "vmatrix"):
            raise ParseFailure(f"environment {name}")
        self.brackets += 1
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        while not self.at(f"end {name}"):
            row.append(self.relation())
            if self.at("\\\\"):
                rows.append(tuple(row))
                row = []
            elif self.at(f"end {name}"):
                break
            elif not self.at("&"):
                raise ParseFailure("matrix")
            self.advance()
        self.advance()
        self.brackets -= 1
        rows += [tuple(row)] if row else []
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise ParseFailure("ragged matrix")
        return Node("matrix", (name, *rows))


def integer(digits: str) -> Node:
    """A number from its digits."""
    if len(digits) > MAX_DIGITS:
        raise ParseFailure("number too long")
    return Node("num", (Fraction(digits),))


def based(digits: str, base: int) -> Node:
    """A number written in a base.

    Raises:
      ParseFailure: the base is out of range, or a digit is not one of it.
    """
    if not 2 <= base <= 36 or not digits.isalnum() or any(int(digit, 36) >= base for digit in digits):
        raise ParseFailure("not a number in this base")
    return Node("base", (digits.upper().lstrip("0") or "0", base))
