"""The lower half of the answer parser: powers, functions, brackets, numbers, names."""

from collections.abc import Callable
from fractions import Fraction

from vsr_jax.verifiers.math_lex import FUNCTIONS, Token, key
from vsr_jax.verifiers.math_node import CALLABLE, Node, ParseFailure
from vsr_jax.verifiers.math_units import NUMBER_WORDS, canonical_unit

MAX_DEPTH = 120  # about thirty nested brackets
MAX_MARKS = 8
MAX_DIGITS = 4_000  # Python refuses to convert longer literals
_DECORATIONS = frozenset("overline bar vec hat widehat overrightarrow tilde widetilde dot ddot underline overarc".split())
_PREFIXES = frozenset(["angle", "triangle", "measuredangle", "square", "parallel"])
_FACTOR_COMMANDS = (
    FUNCTIONS
    | _DECORATIONS
    | _PREFIXES
    | {"frac", "sqrt", "binom", "pi", "infty", "lfloor", "lceil", "mathbb", "emptyset"}
)
_PAIRS = {"lfloor": "rfloor", "lceil": "rceil"}
_CONSTANTS = {"e": "e", "i": "i"}


class AtomParser:
    """A cursor over tokens with the rules for single factors."""

    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.index = 0
        self.depth = 0
        self.brackets = 0  # inside them, a comma always separates
        self.bars = 0
        self.in_set = False

    # Cursor.

    @property
    def token(self) -> Token | None:
        """The current token; None at the end."""
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def ahead(self, count: int) -> Token | None:
        """A later token; None past the end."""
        index = self.index + count
        return self.tokens[index] if index < len(self.tokens) else None

    def at(self, value: str) -> bool:
        """Whether the current token is this operator or command."""
        token = self.token
        return token is not None and token.value == value and token.kind != "word"

    def advance(self) -> None:
        """Moves to the next token."""
        self.index += 1

    def take(self) -> Token:
        """The current token, moving past it."""
        token = self.token
        if token is None:
            raise ParseFailure("unexpected end")
        self.index += 1
        return token

    def expect(self, value: str) -> None:
        """Moves past a token that must be there."""
        if not self.at(value):
            raise ParseFailure(f"missing {value}")
        self.advance()

    def deeper(self) -> None:
        """Counts a level of nesting."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ParseFailure("nested too deeply")

    def shallower(self) -> None:
        """Leaves a level of nesting."""
        self.depth -= 1

    # Levels that the subclass defines.

    def items(self) -> Node:
        """A list of relations."""
        raise NotImplementedError

    def sum(self) -> Node:
        """A sum."""
        raise NotImplementedError

    def relation(self) -> Node:
        """A relation."""
        raise NotImplementedError

    # Factors.

    def signed(self, rule: Callable[[], Node]) -> Node:
        """What `rule` reads, behind up to two signs."""
        signs = []
        while len(signs) < 2 and self.token is not None and self.token.value in ("+", "-", "pm", "mp"):
            signs.append(self.take().value)
        node = rule()
        for sign in reversed(signs):
            if sign != "+":
                node = Node({"-": "neg"}.get(sign, sign), (node,))
        return node

    def starts_factor(self) -> bool:
        """Whether the current token continues a product without a sign."""
        token = self.token
        if token is None:
            return False
        if token.kind == "sym":
            return not token.text or token.value in ("e", "i", "x", "y", "z")
        if token.kind == "cmd":
            return token.value in _FACTOR_COMMANDS
        if token.kind == "word":
            return not token.text and canonical_unit(token.value) is None and not self.is_prose(token)
        if token.kind == "num":  # 150 3^{1/2}; two bare numbers side by side mean nothing
            following = self.ahead(1)
            return token.spaced and following is not None and following.value == "^"
        if token.kind == "env":
            return token.value.startswith("begin")
        return token.value in ("(", "{", "[") or (token.value == "|" and not self.bars)

    def is_prose(self, token: Token) -> bool:
        """Whether a bare word is English rather than a product of letters."""
        return len(token.value) > 3 and not token.value.isupper()

    def factor(self) -> Node:
        """An atom with its powers, subscripts, factorials and marks."""
        node = self.atom()
        raised = False
        start = self.index
        while self.token is not None:
            if self.index - start > MAX_MARKS and node.op in ("fn", "pct", "deg", "sym"):
                raise ParseFailure("too many marks")
            if self.at("^"):
                following = self.ahead(1)
                if raised:
                    raise ParseFailure("double exponent")
                self.advance()
                if self.degree_mark():
                    node = Node("deg", (node,))
                elif following is not None and following.value in ("th", "st", "nd", "rd"):
                    self.advance()
                else:
                    node = Node("pow", (node, self.exponent()))
                    raised = True
            elif self.at("_"):
                self.advance()
                node = self.subscript(node)
            elif self.at("!"):
                self.advance()
                if self.at("!"):
                    raise ParseFailure("double factorial")
                node = Node("fn", ("factorial", node))
            elif self.at("'") and node.op == "sym":
                self.advance()
                node = Node("sym", (node.args[0] + "'",))
            elif self.at("%"):
                self.advance()
                node = Node("pct", (node,))
            elif self.at("circ"):
                self.advance()
                node = Node("deg", (node,))
            else:
                break
        return node

    def degree_mark(self) -> bool:
        r"""Moves past `\circ` or `{\circ}`."""
        if self.at("circ"):
            self.index += 1
            return True
        inner, closing = self.ahead(1), self.ahead(2)
        if self.at("{") and inner is not None and inner.value == "circ" and closing is not None and closing.value == "}":
            self.index += 3
            return True
        return False

    def exponent(self) -> Node:
        """What stands behind `^`: a group, a signed number, or one atom."""
        if self.at("{"):
            return self.braced()
        return self.signed(self.atom)

    def subscript(self, node: Node) -> Node:
        """A base behind a number, or a part of the name behind a symbol."""
        start = self.index
        if self.at("{"):
            self.braced_tokens()
        else:
            self.advance()
        label = key(self.tokens[start : self.index]).strip("{}")
        if not label:
            raise ParseFailure("empty subscript")
        if node.op == "num":
            base = NUMBER_WORDS.get(label.lower(), int(label) if label.isdecimal() and len(label) < 3 else 0)
            digits = self.tokens[start - 2].value
            return based(digits, base)
        if node.op == "sym":
            return Node("sym", (f"{node.args[0]}_{label}",))
        raise ParseFailure("subscript of an expression")

    def atom(self) -> Node:
        """A number, a name, a bracketed group, a function or another macro."""
        self.deeper()
        token = self.take()
        if token.kind == "num":
            node = self.number(token)
        elif token.kind == "sym":
            node = self.symbol(token)
        elif token.kind == "word":
            node = self.words(token)
        elif token.kind == "cmd":
            node = self.command(token.value)
        elif token.kind == "env" and token.value.startswith("begin "):
            node = self.matrix(token.value[6:])
        else:
            node = self.bracket(token.value)
        self.shallower()
        return node

    def number(self, token: Token) -> Node:
        """A literal with its thousands, repeating digits, and the fraction of a mixed number."""
        digits = token.value
        while self.thousands_follow(digits):
            digits += self.tokens[self.index + 1].value
            self.index += 2
        if len(digits) > MAX_DIGITS or "e" in digits.lower() and abs(int(digits.lower().split("e")[1])) > MAX_DIGITS:
            raise ParseFailure("number too long")
        value = Fraction(digits)
        if "." in digits and (self.at("overline") or self.at("dot") or self.at("bar")):
            return Node("num", (value + self.repeating(digits),))
        if value.denominator == 1 and "." not in digits:
            if self.at("frac"):
                self.advance()
                return _mixed(value, self.command("frac"))
            slash, below = self.ahead(1), self.ahead(2)
            above = self.token
            if above and above.kind == "num" and above.spaced and slash and slash.value == "/" and below and below.kind == "num":
                self.index += 3
                return _mixed(value, Node("div", (_integer(above.value), _integer(below.value))))
        return Node("num", (value,))

    def thousands_follow(self, digits: str) -> bool:
        """Whether a comma and exactly three digits follow one to three digits, outside brackets, and so on to the end."""
        if self.brackets or len(digits) > 3 and self.tokens[self.index - 2].value != "," or digits.startswith("0"):
            return False
        index, groups = self.index, 0
        while index + 1 < len(self.tokens):
            comma, group = self.tokens[index], self.tokens[index + 1]
            if comma.value != "," or comma.spaced or group.kind != "num" or group.spaced:
                break
            if len(group.value.partition(".")[0]) != 3:
                return False
            groups += 1
            index += 2
            if "." in group.value:
                break
        return groups > 0

    def repeating(self, digits: str) -> Fraction:
        """The value of the repeating block behind a decimal such as 0.1 with 6 overlined."""
        self.advance()
        start = self.index
        self.braced_tokens()
        block = "".join(token.value for token in self.tokens[start + 1 : self.index - 1])
        if not block.isdecimal() or len(block) > 100:
            raise ParseFailure("repeating block")
        places = len(digits.partition(".")[2])
        return Fraction(int(block), (10 ** len(block) - 1) * 10**places)

    def symbol(self, token: Token) -> Node:
        """A letter: a constant, an applied function f(..), or a variable."""
        name = token.value
        if name in _CONSTANTS:
            return Node("const", (name,))
        if name in CALLABLE and self.at("("):
            self.advance()
            arguments = self.enclosed(")")
            return Node("fn", (name, *(arguments.args[1:] if arguments.op == "bag" else (arguments,))))
        return Node("sym", (name,))

    def words(self, token: Token) -> Node:
        """A number word, a named quantity, or a product of up to three letters."""
        if token.value.lower() in NUMBER_WORDS:
            return Node("num", (Fraction(NUMBER_WORDS[token.value.lower()]),))
        if not token.text and not token.value.isupper() and len(token.value) <= 3:
            letters = [self.symbol(Token("sym", letter, False, False)) for letter in token.value[:-1]]
            # A power, a subscript or an argument belongs to the last letter alone.
            self.index -= 1
            self.tokens[self.index] = Token("sym", token.value[-1], False, False)
            return product([*letters, self.factor()])
        names = [token.value]
        while self.token is not None and (self.token.kind == "word" or (self.token.kind == "sym" and self.token.text)):
            names.append(self.take().value)
        name = " ".join(names)
        return Node("sym", (name if name.isupper() else name.lower(),))

    # Brackets.

    def enclosed(self, closing: str) -> Node:
        """A list up to a closing bracket, inside which commas always separate."""
        self.brackets += 1
        node = self.items()
        self.expect(closing)
        self.brackets -= 1
        return node

    def braced(self) -> Node:
        """A `{..}` group. Several items in plain braces are read as a set."""
        self.expect("{")
        brackets, self.brackets = self.brackets, 0
        bars, self.bars = self.bars, 0
        node = self.items()
        self.brackets, self.bars = brackets, bars
        self.expect("}")
        return Node("set", node.args[1:]) if node.op == "bag" else node

    def braced_tokens(self) -> None:
        """Moves past a `{..}` group without reading it."""
        depth = 0
        while True:
            value = self.take().value
            depth += {"{": 1, "}": -1}.get(value, 0)
            if depth == 0:
                return

    def argument(self) -> Node:
        r"""A macro's argument: a group, one digit (as in `\frac12`), or one atom."""
        if self.at("{"):
            return self.braced()
        token = self.token
        if token is not None and token.kind == "num" and token.value[0] != ".":
            rest = token.value[1:]
            self.tokens[self.index : self.index + 1] = [Token("num", rest, False, token.text)] if rest else []
            return _integer(token.value[0])
        return self.atom()

    def bracket(self, opening: str) -> Node:
        """A parenthesis, point, interval, set, absolute value or plain group."""
        if opening == "{":
            self.index -= 1
            return self.braced()
        if opening == r"\{":
            return self.set_braces()
        if opening == "|":
            self.bars += 1
            node = self.sum()
            self.expect("|")
            self.bars -= 1
            return Node("fn", ("abs", node))
        if opening not in ("(", "["):
            raise ParseFailure(f"unexpected {opening}")
        self.brackets += 1
        bars, self.bars = self.bars, 0
        node = self.items()
        self.bars = bars
        self.brackets -= 1
        closing = self.take().value
        if closing not in (")", "]"):
            raise ParseFailure("unbalanced bracket")
        if node.op == "bag":
            return Node("tuple", (opening, closing, *node.args[1:]))
        if (opening, closing) not in (("(", ")"), ("[", "]")):
            raise ParseFailure("unbalanced bracket")
        return node

    def set_braces(self) -> Node:
        r"""`\{..\}`: a list of elements, or an element with conditions."""
        if self.at(r"\}"):
            self.advance()
            return Node("set", ())
        self.brackets += 1
        inside, self.in_set = self.in_set, True
        bars, self.bars = self.bars, 1
        node = self.items()
        if self.token is not None and self.token.value in (":", "mid", "|"):
            self.advance()
            condition = self.items()
            node = Node("builder", (node, condition))
        self.bars = bars
        self.in_set = inside
        self.brackets -= 1
        self.expect(r"\}")
        if node.op == "builder":
            return node
        return Node("set", node.args[1:] if node.op == "bag" else (node,))

    def matrix(self, name: str) -> Node:
        r"""Rows between `\begin` and `\end`."""
        if name not in ("matrix", "vmatrix"):
            raise ParseFailure(f"environment {name}")
        self.brackets += 1
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        while True:
            if self.at(f"end {name}"):
                self.advance()
                break
            row.append(self.relation())
            if self.at("&"):
                self.advance()
            elif self.at("\\\\"):
                self.advance()
                rows.append(tuple(row))
                row = []
            elif not self.at(f"end {name}"):
                raise ParseFailure("matrix")
        self.brackets -= 1
        if row:
            rows.append(tuple(row))
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise ParseFailure("ragged matrix")
        return Node("matrix", (name, *rows))

    # Macros.

    def command(self, name: str) -> Node:
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
        if name in _PAIRS:
            node = self.sum()
            self.expect(_PAIRS[name])
            return Node("fn", ("floor" if name == "lfloor" else "ceil", node))
        if name == "emptyset":
            return Node("set", ())
        if name == "mathbb":
            self.index -= 1
            return self.blackboard()
        if name in _DECORATIONS or name in _PREFIXES:
            start = self.index
            if self.at("{"):
                self.braced_tokens()
            else:
                self.advance()
            return Node("sym", (f"{name} {key(self.tokens[start : self.index]).strip('{}')}",))
        raise ParseFailure(f"macro {name}")

    def blackboard(self) -> Node:
        r"""`\mathbb{R}` is the set of reals; other letters are names."""
        self.advance()
        start = self.index
        if self.at("{"):
            self.braced_tokens()
        else:
            self.advance()
        letter = key(self.tokens[start : self.index]).strip("{}")
        return Node("reals", ()) if letter == "R" else Node("sym", (f"mathbb {letter}",))

    def root(self) -> Node:
        r"""`\sqrt{a}`, `\sqrt a`, `\sqrt(a)`, `\sqrt[n]{a}`; all digits of a bare number are under the root."""
        degree = Node("num", (Fraction(2),))
        if self.at("["):
            self.advance()
            degree = self.sum()
            self.expect("]")
        radicand = self.braced() if self.at("{") else self.atom()
        return Node("pow", (radicand, Node("div", (_integer("1"), degree))))

    def function(self, name: str) -> Node:
        """A named function with its power or base and its argument, in brackets or not."""
        power = base = None
        while self.token is not None and self.token.value in ("^", "_"):
            if self.take().value == "^":
                power = self.exponent()
            else:
                base = self.exponent()
        if name in ("gcd", "lcm", "min", "max", "det"):
            self.expect("(")
            arguments = self.enclosed(")")
            return Node("fn", (name, *(arguments.args[1:] if arguments.op == "bag" else (arguments,))))
        argument = self.function_argument()
        if power == Node("neg", (_integer("1"),)) and name in ("sin", "cos", "tan", "cot"):
            name, power = "arc" + name, None
        if base is not None and name != "log":
            raise ParseFailure(f"subscript of {name}")
        node = Node("fn", (name, argument) if base is None else (name, argument, base))
        return node if power is None else Node("pow", (node, power))

    def function_argument(self) -> Node:
        """Brackets, or a run of factors up to a sign, a product sign or the next function."""
        if self.at("(") or self.at("{"):
            return self.atom()
        factors = [self.signed(self.factor)]
        while self.starts_factor() and not (self.token is not None and self.token.value in FUNCTIONS):
            factors.append(self.factor())
        node = product(factors)
        if self.at("/") and node.op != "fn":
            self.advance()
            node = Node("div", (node, self.factor()))
        return node


def product(factors: list[Node]) -> Node:
    """A product; a single factor stands for itself."""
    return Node("mul", tuple(factors)) if len(factors) > 1 else factors[0]


def based(digits: str, base: int) -> Node:
    """A number written in a base.

    Raises:
      ParseFailure: the base is out of range, or a digit is not one of it.
    """
    if not 2 <= base <= 36 or not digits.isalnum() or any(int(digit, 36) >= base for digit in digits):
        raise ParseFailure("not a number in this base")
    return Node("base", (digits.upper().lstrip("0") or "0", base))


def _integer(digits: str) -> Node:
    if len(digits) > MAX_DIGITS:
        raise ParseFailure("number too long")
    return Node("num", (Fraction(digits),))


def _mixed(whole: Fraction, fraction: Node) -> Node:
    """An integer directly before a proper fraction is a sum; before any other fraction it is a product."""
    above, below = fraction.args
    if above.op == below.op == "num" and 0 < above.args[0] < below.args[0]:
        return Node("add", (Node("num", (whole,)), fraction))
    return Node("mul", (Node("num", (whole,)), fraction))
