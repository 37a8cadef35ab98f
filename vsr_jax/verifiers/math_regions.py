"""Sets of reals: intervals, unions, inequalities, and set-builder notation, in one canonical form."""

from functools import cmp_to_key
from itertools import pairwise
from typing import NamedTuple

from vsr_jax.verifiers.math_exact import Budget
from vsr_jax.verifiers.math_node import CALLABLE, Node
from vsr_jax.verifiers.math_scalar import compare
from vsr_jax.verifiers.math_value import NotScalar, names

_INFINITY = Node("const", ("inf",))
_MINUS_INFINITY = Node("neg", (_INFINITY,))
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
ORDER = frozenset(["<", "<=", ">", ">=", "!="])
MAX_PARTS = 60


class Cut(NamedTuple):
    """A place on the real line: just below (-1), at (0), or just above (1) a value."""

    value: Node
    side: int


class Region(NamedTuple):
    """Disjoint, non-touching pieces in ascending order.

    Attributes:
      pieces: (first, last) cuts; a closed left end is a cut just below its value, an open one just above.
      label: the quantity that an inequality bounds, None for a bare set.
    """

    pieces: tuple[tuple[Cut, Cut], ...]
    label: Node | None


def mentions_region(node: Node) -> bool:
    """Whether a tree is written as a union, an inequality, a set difference or the like."""
    if node.op in ("cup", "cap", "setminus", "reals", "builder"):
        return True
    if node.op == "rel":
        return any(relation in ORDER for relation in node.args[0]) or (
            node.args[0] == ("in",) and (node.args[2].op == "tuple" or mentions_region(node.args[2]))
        )
    return node.op == "bag" and all(mentions_region(part) for part in node.args[1:])


def same_region(a: Node, b: Node, budget: Budget) -> bool | None:
    """Whether two trees are the same set of reals; None when one of them is not readable as such a set."""
    left, right = region(a, budget), region(b, budget)
    if left is None or right is None:
        return None
    if left.label is not None and right.label is not None:
        if left.label != right.label:
            return None
    elif not all(label is None or _plain(label) for label in (left.label, right.label)):
        return None
    if len(left.pieces) != len(right.pieces):
        return False
    ends = [(x, y) for p, q in zip(left.pieces, right.pieces, strict=True) for x, y in zip(p, q, strict=True)]
    return all(x.side == y.side and compare(x.value, y.value, budget) == 0 for x, y in ends)


def region(node: Node, budget: Budget) -> Region | None:
    """The set of reals that a tree denotes, None when it is something else."""
    try:
        return _region(node, budget)
    except NotScalar:
        return None


def _plain(label: Node) -> bool:
    """x or f(x): a quantity whose range is the answer."""
    return label.op == "sym" or (label.op == "fn" and label.args[0] in CALLABLE)


def _region(node: Node, budget: Budget) -> Region | None:
    op, args = node
    if op == "reals":
        return _make([(Cut(_MINUS_INFINITY, 1), Cut(_INFINITY, -1))], None, budget)
    if op == "tuple" and len(args) == 4:
        opening, closing, low, high = args
        if compare(low, high, budget) >= 0:
            return None
        return _make([(Cut(low, -1 if opening == "[" else 1), Cut(high, 1 if closing == "]" else -1))], None, budget)
    if op == "set":
        return _make([(Cut(value, -1), Cut(value, 1)) for value in args], None, budget)
    if op == "builder":
        inner = _region(args[1], budget)
        return inner and inner._replace(label=None if _plain(args[0]) or args[0].op == "rel" else inner.label)
    if op in ("cup", "cap", "setminus"):
        left, right = _region(args[0], budget), _region(args[1], budget)
        if left is None or right is None:
            return None
        if op == "cup":
            return _make([*left.pieces, *right.pieces], left.label, budget)
        return _intersection(left, right if op == "cap" else _complement(right), budget)
    if op == "rel":
        return _relation(node, budget)
    if op == "bag":
        return _joined(args[0], [_region(part, budget) for part in args[1:]], budget)
    return None


def _joined(joiner: str, parts: list[Region | None], budget: Budget) -> Region | None:
    result = parts[0]
    for part in parts[1:]:
        if result is None or part is None or result.label != part.label:
            return None
        if joiner == "or" or part.label is None:
            result = _make([*result.pieces, *part.pieces], result.label, budget)
        else:
            result = _intersection(result, part, budget)
    return result


def _relation(node: Node, budget: Budget) -> Region | None:
    relations, *sides = node.args
    if relations == ("in",):
        inner = _region(sides[1], budget)
        return inner and inner._replace(label=sides[0])
    labels = [side for side in sides if names(side)]
    if len(labels) != 1 or any(relation not in ORDER for relation in relations):
        return None
    result = Region(((Cut(_MINUS_INFINITY, 1), Cut(_INFINITY, -1)),), labels[0])
    place = next(index for index, side in enumerate(sides) if side is labels[0])
    if not 0 <= place <= 1 or len(sides) > 3 or (len(sides) == 3 and place != 1):
        return None
    relation: str
    for index, relation in enumerate(relations):
        bound = sides[index] if index < place else sides[index + 1]
        if index < place:
            relation = FLIPPED.get(relation, relation)
        result = _intersection(result, _half_line(relation, bound), budget)
    return result


def _half_line(relation: str, bound: Node) -> Region:
    """All x with `x relation bound`."""
    below = (Cut(_MINUS_INFINITY, 1), Cut(bound, 1 if relation == "<=" else -1))
    above = (Cut(bound, -1 if relation == ">=" else 1), Cut(_INFINITY, -1))
    pieces = {"<": (below,), "<=": (below,), ">": (above,), ">=": (above,), "!=": (below, above)}[relation]
    return Region(pieces, None)


def _order(budget: Budget):
    def order(a: Cut, b: Cut) -> int:
        return compare(a.value, b.value, budget) or (a.side > b.side) - (a.side < b.side)

    return order


def _make(pieces: list[tuple[Cut, Cut]], label: Node | None, budget: Budget) -> Region:
    """Sorts pieces and joins those that overlap or touch."""
    if len(pieces) > MAX_PARTS:
        raise NotScalar("too many pieces")
    order = _order(budget)
    merged: list[tuple[Cut, Cut]] = []
    for first, last in sorted(pieces, key=cmp_to_key(lambda p, q: order(p[0], q[0]))):
        if merged and order(first, merged[-1][1]) <= 0:
            if order(last, merged[-1][1]) > 0:
                merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return Region(tuple(merged), label)


def _complement(inner: Region) -> Region:
    cuts = [Cut(_MINUS_INFINITY, 1), *(cut for piece in inner.pieces for cut in piece), Cut(_INFINITY, -1)]
    pieces = tuple((a, b) for i, (a, b) in enumerate(pairwise(cuts)) if i % 2 == 0 and a != b)
    return Region(pieces, None)


def _intersection(left: Region, right: Region, budget: Budget) -> Region:
    order = _order(budget)
    pieces = []
    for a, b in left.pieces:
        for c, d in right.pieces:
            first = a if order(a, c) >= 0 else c
            last = b if order(b, d) <= 0 else d
            if order(first, last) < 0:
                pieces.append((first, last))
    return _make(pieces, left.label or right.label, budget)
