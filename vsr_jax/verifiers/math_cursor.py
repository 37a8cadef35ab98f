"""A cursor over the tokens of an answer, and the rules that higher levels of the parser supply."""

from collections.abc import Callable

from vsr_jax.verifiers.math_lex import END, Token
from vsr_jax.verifiers.math_node import Node, ParseFailure

MAX_DEPTH = 120  # about thirty nested brackets


class Cursor:
    """A place in the tokens.

    Args:
      tokens: what to read; not changed.
    """

    def __init__(self, tokens: list[Token]):
        self.tokens = [*tokens, END, END, END]  # so that looking ahead needs no check
        self.index = 0
        self.depth = 0
        self.brackets = 0  # inside them, a comma always separates
        self.bars = 0  # open absolute values
        self.in_set = False

    @property
    def token(self) -> Token:
        """The current token; `END` behind the last."""
        return self.tokens[self.index]

    def ahead(self, count: int) -> Token:
        """One of the next two tokens."""
        return self.tokens[self.index + count]

    def at(self, value: str) -> bool:
        """Whether the current token is this operator, symbol or command."""
        token = self.tokens[self.index]
        return token[1] == value and token[0] != "word"

    def advance(self) -> None:
        """Moves to the next token."""
        self.index += 1

    def take(self) -> Token:
        """The current token, moving past it."""
        token = self.tokens[self.index]
        if token is END:
            raise ParseFailure("unexpected end")
        self.index += 1
        return token

    def expect(self, value: str) -> None:
        """Moves past a token that must be there."""
        if not self.at(value):
            raise ParseFailure(f"missing {value}")
        self.index += 1

    def deeper(self) -> None:
        """Counts a level of nesting."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ParseFailure("nested too deeply")

    def shallower(self) -> None:
        """Leaves a level of nesting."""
        self.depth -= 1

    def skip_group(self) -> list[Token]:
        """The tokens of a `{..}` group, braces included, or the next token; moves past them unread."""
        start, depth = self.index, 0
        while True:
            depth += {"{": 1, "}": -1}.get(self.take().value, 0)
            if depth <= 0:
                return self.tokens[start : self.index]

    # Rules of higher levels.

    def items(self) -> Node:
        """A list of relations; a single one stands for itself."""
        raise NotImplementedError

    def relation(self) -> Node:
        """Sides joined by relation signs."""
        raise NotImplementedError

    def sum(self) -> Node:
        """Signed terms."""
        raise NotImplementedError

    def factor(self) -> Node:
        """An atom with its powers and marks."""
        raise NotImplementedError

    def atom(self) -> Node:
        """A number, a name, a bracketed group or a macro."""
        raise NotImplementedError

    def starts_factor(self) -> bool:
        """Whether the current token continues a product without a sign."""
        raise NotImplementedError

    # Shared rules.

    def signed(self, rule: Callable[[], Node]) -> Node:
        """What `rule` reads, behind up to two signs."""
        signs = []
        while len(signs) < 2 and self.token.value in ("+", "-", "pm", "mp"):
            signs.append(self.take().value)
        node = rule()
        for sign in reversed(signs):
            node = with_sign(sign, node)
        return node

    def braced(self) -> Node:
        """A `{..}` group. Several items in plain braces are a set."""
        self.expect("{")
        brackets, self.brackets = self.brackets, 0
        bars, self.bars = self.bars, 0
        node = self.items()
        self.brackets, self.bars = brackets, bars
        self.expect("}")
        return Node("set", node.args[1:]) if node.op == "bag" else node

    def exponent(self) -> Node:
        """What stands behind `^`: a group, or a signed atom."""
        return self.braced() if self.at("{") else self.signed(self.atom)


def with_sign(sign: str, node: Node) -> Node:
    """A node behind `+`, `-`, `pm` or `mp`."""
    return node if sign == "+" else Node("neg" if sign == "-" else sign, (node,))


def product(factors: list[Node]) -> Node:
    """A product; a single factor stands for itself."""
    return Node("mul", tuple(factors)) if len(factors) > 1 else factors[0]
