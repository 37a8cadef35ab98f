"""The part of the answer parser that reads numbers, names, brackets, powers and marks."""

from fractions import Fraction

from vsr_jax.verifiers.math_cursor import product
from vsr_jax.verifiers.math_lex import Token, key
from vsr_jax.verifiers.math_macros import FACTOR_MACROS, MAX_DIGITS, MacroRules, based, integer
from vsr_jax.verifiers.math_node import CALLABLE, Node, ParseFailure
from vsr_jax.verifiers.math_units import NUMBER_WORDS, canonical_unit

MAX_MARKS = 8
_DEGREE = frozenset(["circ"])
_ORDINALS = frozenset(["th", "st", "nd", "rd"])
_ALL_REALS = frozenset(["all real numbers", "all reals", "real numbers"])


class AtomRules(MacroRules):
    """Rules for factors."""

    def starts_factor(self) -> bool:
        """Whether the current token continues a product without a sign."""
        token = self.token
        if token.kind == "sym":
            return not token.text or token.value in ("e", "i", "x", "y", "z")
        if token.kind == "cmd":
            return token.value in FACTOR_MACROS
        if token.kind == "word":
            return not token.text and canonical_unit(token.value) is None and not is_prose(token)
        if token.kind == "num":  # 150 3^{1/2} and 2!3!; two bare numbers side by side mean nothing
            return (token.spaced and self.ahead(1).value == "^") or self.tokens[self.index - 1].value == "!"
        if token.kind == "env":
            return token.value.startswith("begin")
        return token.value in ("(", "{", "[") or (token.value == "|" and not self.bars)

    def factor(self) -> Node:
        """An atom with its powers, subscripts, factorials and marks."""
        node = self.atom()
        raised = False
        for _ in range(MAX_MARKS):
            if self.at("^"):
                if raised:
                    raise ParseFailure("double exponent")
                self.advance()
                if self.raised(_DEGREE):
                    node = Node("deg", (node,))
                elif not self.raised(_ORDINALS):
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
                return node
        raise ParseFailure("too many marks")

    def raised(self, marks: frozenset[str]) -> bool:
        """Moves past one of these marks, in braces or not."""
        if self.token.value in marks:
            self.index += 1
        elif self.at("{") and self.ahead(1).value in marks and self.ahead(2).value == "}":
            self.index += 3
        else:
            return False
        return True

    def subscript(self, node: Node) -> Node:
        """A base behind a number, or a part of the name behind a symbol."""
        digits = self.tokens[self.index - 2].value
        label = key(self.skip_group()).strip("{}")
        if node.op == "num":
            label = label.lower().removeprefix("base")
            return based(digits, NUMBER_WORDS.get(label, int(label) if label.isdecimal() and len(label) < 3 else 0))
        if node.op == "sym" and label:
            return Node("sym", (f"{node.args[0]}_{label}",))
        raise ParseFailure("subscript")

    def atom(self) -> Node:
        """A number, a name, a bracketed group, a function or another macro."""
        self.deeper()
        token = self.take()
        if token.kind == "num":
            node = self.number(token)
        elif token.kind == "sym":
            node = self.symbol(token.value)
        elif token.kind == "word":
            node = self.words(token)
        elif token.kind == "cmd":
            node = self.macro(token.value)
        elif token.kind == "env":
            node = self.matrix(token.value.removeprefix("begin "))
        else:
            node = self.bracket(token.value)
        self.shallower()
        return node

    # Numbers.

    def number(self, token: Token) -> Node:
        """A literal with its thousands, its repeating digits, or the fraction of a mixed number."""
        digits = token.value + self.thousands(token)
        mantissa, _, power = digits.lower().partition("e")
        if len(mantissa) > MAX_DIGITS or (power and (len(power) > 5 or abs(int(power)) > MAX_DIGITS)):
            raise ParseFailure("number too long")
        value = Fraction(digits)
        if "." in digits:
            if self.token.value in ("overline", "dot", "bar"):
                value += self.repeating(digits)
            return Node("num", (value,))
        if self.at("frac"):
            self.advance()
            return _mixed(value, self.macro("frac"))
        above, slash, below = self.token, self.ahead(1), self.ahead(2)
        if above.kind == below.kind == "num" and above.spaced and slash.value == "/":
            self.index += 3
            return _mixed(value, Node("div", (integer(above.value), integer(below.value))))
        return Node("num", (value,))

    def thousands(self, token: Token) -> str:
        """The groups of three digits that commas join to a number of one to three digits, outside brackets.

        Moves past them. All groups up to the end of the run must have three digits, else the commas make a list.
        """
        if self.brackets or len(token.value) > 3 or token.value.startswith("0") or "." in token.value:
            return ""
        index, groups = self.index, ""
        while self.tokens[index].value == "," and not self.tokens[index].spaced:
            group = self.tokens[index + 1]
            whole, point, _ = group.value.partition(".")
            if group.kind != "num" or group.spaced:
                break
            if len(whole) != 3 or not whole.isdecimal():
                return ""
            groups += group.value
            index += 2
            if point:
                break
        self.index = index if groups else self.index
        return groups

    def repeating(self, digits: str) -> Fraction:
        """The value of the overlined block behind a decimal such as 0.1."""
        self.advance()
        block = "".join(token.value for token in self.skip_group()).strip("{}")
        if not block.isdecimal() or len(block) > 100:
            raise ParseFailure("repeating block")
        places = len(digits.partition(".")[2])
        return Fraction(int(block), (10 ** len(block) - 1) * 10**places)

    # Names.

    def symbol(self, name: str) -> Node:
        """A letter: a constant, an applied function f(..), or a variable."""
        if name in ("e", "i"):
            return Node("const", (name,))
        if name in CALLABLE and self.at("("):
            return self.application(name)
        return Node("sym", (name,))

    def words(self, token: Token) -> Node:
        """A number word, a product of up to three letters, or the name of a quantity."""
        if token.value.lower() in NUMBER_WORDS:
            return Node("num", (Fraction(NUMBER_WORDS[token.value.lower()]),))
        if not token.text and not token.value.isupper() and len(token.value) <= 3:
            letters = [self.symbol(letter) for letter in token.value[:-1]]
            # A power, a subscript or an argument belongs to the last letter alone.
            self.index -= 1
            self.tokens[self.index] = Token("sym", token.value[-1], False, False)
            return product([*letters, self.factor()])
        names = [token.value]
        while self.token.kind == "word" or (self.token.kind == "sym" and self.token.text):
            names.append(self.take().value)
        name = " ".join(names)
        name = name if name.isupper() else name.lower()
        return Node("reals", ()) if name in _ALL_REALS else Node("sym", (name,))

    # Brackets.

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
        inside, self.in_set = self.in_set, False
        node = self.items()
        self.in_set = inside
        self.bars = bars
        self.brackets -= 1
        closing = self.take().value
        if closing not in (")", "]") or (node.op != "bag" and opening + closing not in ("()", "[]")):
            raise ParseFailure("unbalanced bracket")
        return Node("tuple", (opening, closing, *node.args[1:])) if node.op == "bag" else node

    def set_braces(self) -> Node:
        r"""`\{..\}`: a list of elements, or an element with conditions."""
        if self.at(r"\}"):
            self.advance()
            return Node("set", ())
        self.brackets += 1
        inside, self.in_set = self.in_set, True
        bars, self.bars = self.bars, 1  # a bar here ends the element, it opens no absolute value
        node = self.items()
        if self.token.value in (":", "mid", "|"):
            self.advance()
            self.bars = 0
            node = Node("builder", (node, self.items()))
        elif node.op == "bag":
            node = Node("set", node.args[1:])
        else:
            node = Node("set", (node,))
        self.bars = bars
        self.in_set = inside
        self.brackets -= 1
        self.expect(r"\}")
        return node


def is_prose(token: Token) -> bool:
    """Whether a bare word is English rather than a product of letters."""
    return len(token.value) > 3 and not token.value.isupper()


def _mixed(whole: Fraction, fraction: Node) -> Node:
    """An integer directly before a proper fraction is a sum, before a fraction with other symbols a product.

    Raises:
      ParseFailure: the fraction is improper, so that neither is meant.
    """
    above, below = fraction.args
    if not above.op == below.op == "num":
        return Node("mul", (Node("num", (whole,)), fraction))
    if 0 < above.args[0] < below.args[0]:
        return Node("add", (Node("num", (whole,)), fraction))
    raise ParseFailure("an integer before an improper fraction")
