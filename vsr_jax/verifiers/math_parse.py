"""A recursive-descent parser from tokens to a tree; what it does not know makes the whole answer unparsed.

This file holds the upper levels: lists, relations, unions, sums, products, units.
"""

from fractions import Fraction

from vsr_jax.verifiers.math_atoms import AtomRules, is_prose
from vsr_jax.verifiers.math_cursor import product, with_sign
from vsr_jax.verifiers.math_lex import END, Token
from vsr_jax.verifiers.math_node import Node, ParseFailure
from vsr_jax.verifiers.math_units import LETTERS, QUALIFIERS, SCALES, SHAPES, canonical_unit

MAX_TOKENS = 1_000
MAX_UNIONS = 40
_RELATIONS = {
    "=": "=", "equiv": "=", "<": "<", ">": ">", "leq": "<=", "geq": ">=", "neq": "!=", "approx": "~", "in": "in",
}  # fmt: skip
_CLOSERS = frozenset([")", "]", "}", r"\}", "&", "\\\\"])


def parse(tokens: list[Token]) -> Node:
    """The tree of an answer.

    Raises:
      ParseFailure: a token is left over, unknown or misplaced, or the nesting is too deep.
    """
    if not tokens or len(tokens) > MAX_TOKENS:
        raise ParseFailure("empty or too long")
    parser = AnswerParser(tokens)
    node = parser.items()
    if parser.token is not END:
        raise ParseFailure(f"left over: {parser.token.value}")
    return node


class AnswerParser(AtomRules):
    """The whole grammar."""

    def items(self) -> Node:
        """A list separated by commas, semicolons, `and`, `or`; a single item stands for itself."""
        self.deeper()
        parts: list[Node] = []
        joiners: set[str] = set()
        while True:
            joiner = self.separator()
            if self.closes(self.token):
                break
            if parts:
                if not joiner:
                    raise ParseFailure(f"unexpected {self.token.value}")
                joiners.add(joiner)
            parts.append(self.relation())
        self.shallower()
        if not parts:
            raise ParseFailure("nothing between brackets")
        if len(parts) == 1:
            return parts[0]
        joiner = "or" if "or" in joiners else "and" if "and" in joiners else ","
        return Node("bag", (joiner, *parts))

    def closes(self, token: Token) -> bool:
        """Whether a token ends the list that it follows."""
        if token.kind == "env":
            return token.value.startswith("end ")
        if token is END or token.value in _CLOSERS:
            return True
        return (token.value == "|" and self.bars > 0) or (token.value in (":", "mid") and self.in_set)

    def separator(self) -> str:
        """Skips separators; the strongest word among them, else a comma, else nothing."""
        found = ""
        while self.token.value in (",", ";", "or", "and"):
            value = self.take().value
            if value in ("or", "and"):
                found = value
            found = found or ","
        return found

    def relation(self) -> Node:
        """Sides joined by = < > and the like, or a single side."""
        if self.token.value in ("=", "approx"):
            self.advance()
        sides = [self.side()]
        relations: list[str] = []
        while self.token.kind != "word" and self.token.value in _RELATIONS:
            relations.append(_RELATIONS[self.take().value])
            sides.append(self.side())
        return Node("rel", (tuple(relations), *sides)) if relations else sides[0]

    def side(self) -> Node:
        """A ratio a:b, a time such as 9:05, or a single part."""
        parts = [self.sets()]
        digits = []
        while self.at(":") and not self.in_set:
            self.advance()
            digits.append(len(self.token.value) if self.token.kind == "num" else 0)
            parts.append(self.sum())
        if not digits:
            return parts[0]
        timely = all(count == 2 for count in digits) and all(part.op == "num" for part in parts)
        return Node("time" if timely else "ratio", tuple(parts))

    def sets(self) -> Node:
        """Sums joined by union, intersection or set difference."""
        node = self.sum()
        for _ in range(MAX_UNIONS):
            if self.token.value not in ("cup", "cap", "setminus"):
                return node
            node = Node(self.take().value, (node, self.sum()))
        raise ParseFailure("too many sets")

    def sum(self) -> Node:
        """Signed terms, then a unit."""
        self.deeper()
        terms = [self.signed(self.term)]
        while self.token.value in ("+", "-", "pm", "mp"):
            terms.append(with_sign(self.take().value, self.term()))
        node = Node("add", tuple(terms)) if len(terms) > 1 else terms[0]
        if self.at("over"):
            self.advance()
            node = Node("div", (node, self.sum()))
        self.shallower()
        return self.unit(node)

    def term(self) -> Node:
        """Factors joined by a product sign, a slash, or nothing."""
        self.deeper()
        above, below = [self.factor()], []
        while True:
            if self.at("*"):
                self.advance()
                above.append(self.signed(self.factor))
            elif self.at("/"):
                self.advance()
                below.append(self.signed(self.factor))
            elif self.starts_factor():
                above.append(self.factor())
            else:
                break
        self.shallower()
        return Node("div", (product(above), product(below))) if below else product(above)

    def unit(self, node: Node) -> Node:
        """Words behind a quantity: a unit with its power, `degrees`, `percent`, or a scale such as `million`."""
        words: list[str] = []
        while self.is_unit(self.token, bool(words)):
            token = self.take()
            if token.kind == "op":  # a full stop, or a sign between units
                continue
            word = token.value.lower() if len(token.value) > 1 else token.value
            if word in QUALIFIERS:
                raise ParseFailure(f"a quantity with {word}")
            if word in SCALES:
                node = Node("mul", (node, Node("num", (Fraction(SCALES[word]),))))
            elif word in ("degree", "degrees"):
                node = Node("deg", (node,))
            elif word == "percent":
                node = Node("pct", (node,))
            else:
                words.append(token.value)
                if self.at("^"):
                    self.advance()
                    self.exponent()
        if not words:
            return node
        names = [word for word in words if word.lower() not in SHAPES]
        return Node("unit", (node, canonical_unit(names[0]) or "" if len(names) == 1 else ""))

    def is_unit(self, token: Token, started: bool) -> bool:
        """Whether a token behind a quantity names its unit."""
        if token.kind == "word":
            known = token.text or canonical_unit(token.value) is not None or (started and token.value.lower() in SHAPES)
            return known or is_prose(token)
        if token.kind == "sym":
            return token.text and (started or token.value in LETTERS)
        following = self.ahead(1)
        return started and token.value in ("/", ".", "*") and (following.kind == "word" or following.text)
