"""Whether two parsed answers mean the same: lists, points, sets, matrices, equations, numbers with marks."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product

from vsr_jax.verifiers import math_exact as exact
from vsr_jax.verifiers.math_exact import Budget
from vsr_jax.verifiers.math_node import Node
from vsr_jax.verifiers.math_regions import FLIPPED, mentions_region, same_region
from vsr_jax.verifiers.math_scalar import equal, infinity, points
from vsr_jax.verifiers.math_value import NotScalar, evaluate, names

MAX_ITEMS = 40
_APPROXIMATELY = Fraction(1, 100)


def same(gold: Node, answer: Node, budget: Budget) -> bool:
    """Whether `answer` means the same as `gold`.

    Raises:
      NotScalar, TooBig: it cannot be told; the caller takes that as different.
    """
    if mentions_region(gold) or mentions_region(answer):
        verdict = same_region(gold, answer, budget)
        if verdict is not None:
            return verdict
    if gold.op == "rel" or answer.op == "rel":
        return _same_relation(gold, answer, budget)
    if _is_list(gold) or _is_list(answer):
        return _same_list(gold, answer, budget)
    if gold.op == answer.op == "tuple":
        return _same_tuple(gold, answer, budget)
    expected, found = _matrix(gold), _matrix(answer)
    if expected is not None or found is not None:
        return expected is not None and found is not None and _same_matrix(expected, found, budget)
    if gold.op == "tuple" or answer.op == "tuple":
        return False
    if {gold.op, answer.op} & {"ratio", "time"}:
        return _same_ratio(gold, answer, budget)
    if gold.op == "base" or _magnitude(gold).op == "base":
        return gold == answer
    return _same_number(gold, answer, budget)


# Numbers with degree and percent signs and units.


def _same_number(gold: Node, answer: Node, budget: Budget) -> bool:
    """The printed numbers agree, or a marked answer equals an unmarked gold.

    So 25 and 25 % match, and a gold of 0.25 accepts 25 %. But a gold of 25 % does not accept 0.25: a factor of 100
    without a sign is wrong. Degrees and radians match either way, since pi shows which is meant.
    """
    if infinity(gold) or infinity(answer):
        return infinity(gold) == infinity(answer)
    mark, unit, number = _unmarked(gold)
    other_mark, other_unit, other = _unmarked(answer)
    if mark and other_mark and mark != other_mark:
        return False
    if unit and other_unit and unit != other_unit:
        return False
    if equal(number, other, budget):
        return True
    if (other_mark and not mark) or (mark == "deg" and not other_mark):
        return equal(gold, answer, budget)
    return False


def _unmarked(node: Node) -> tuple[str, str, Node]:
    """The mark (`deg`, `pct` or none), the unit and the number of a quantity."""
    if node.op == "neg":
        mark, unit, inner = _unmarked(node.args[0])
        return mark, unit, Node("neg", (inner,))
    if node.op == "unit":
        mark, _, inner = _unmarked(node.args[0])
        return mark, node.args[1], inner
    if node.op in ("deg", "pct"):
        _, unit, inner = _unmarked(node.args[0])
        return node.op, unit, inner
    return "", "", node


def _magnitude(node: Node) -> Node:
    return node.args[0] if node.op == "neg" else node


# Lists and sets.


def _is_list(node: Node) -> bool:
    return node.op in ("bag", "set") or _has_sign(node)


def _has_sign(node: Node) -> bool:
    stack = [node]
    while stack:
        current = stack.pop()
        if current.op in ("pm", "mp"):
            return True
        stack.extend(current.children())
    return False


def _elements(node: Node) -> list[Node]:
    """The items of a list or set, with each plus-minus written out; any other tree is its own only item."""
    items = node.args[1:] if node.op == "bag" else node.args if node.op == "set" else (node,)
    found = [variant for item in items for variant in _both_signs(item)]
    if len(found) > MAX_ITEMS:
        raise NotScalar("too many items")
    return found


def _both_signs(node: Node) -> list[Node]:
    r"""The values of an expression with `\pm`: linked signs where `\mp` occurs too, else every choice."""
    if not _has_sign(node):
        return [node]
    signs = _signs(node)
    if "mp" in signs or len(signs) == 1:
        return [_choose(node, [upper] * len(signs))[0] for upper in (True, False)]
    if len(signs) > 3:
        raise NotScalar("too many signs")
    return [_choose(node, list(choice))[0] for choice in product((True, False), repeat=len(signs))]


def _signs(node: Node) -> list[str]:
    found = [node.op] if node.op in ("pm", "mp") else []
    for child in node.children():
        found += _signs(child)
    return found


def _choose(node: Node, choices: list[bool]) -> tuple[Node, list[bool]]:
    """Replaces each sign, in reading order, by the chosen one; also what is left of the choices."""
    upper = False
    if node.op in ("pm", "mp"):
        upper, choices = choices[0], choices[1:]
    args = []
    for argument in node.args:
        if isinstance(argument, Node):
            argument, choices = _choose(argument, choices)
        args.append(argument)
    if node.op in ("pm", "mp"):
        return (args[0] if upper == (node.op == "pm") else Node("neg", (args[0],))), choices
    return Node(node.op, tuple(args)), choices


def _same_list(gold: Node, answer: Node, budget: Budget) -> bool:
    """Same elements, same count, any order. A bare gold list also accepts itself in brackets, in its own order."""
    ordered = False
    if answer.op == "tuple":
        if gold.op != "bag":
            return False
        expected, found, ordered = _elements(gold), list(answer.args[2:]), True
    elif gold.op == "tuple":
        labels = [_label(item) or "" for item in _elements(answer)]
        if "" in labels or labels != sorted(set(labels)):
            return False  # a bare list or a set is no point; x = 1, y = 3 is one
        expected, found, ordered = list(gold.args[2:]), [_value(item) for item in _elements(answer)], True
    else:
        expected, found = _elements(gold), _elements(answer)
    if len(expected) != len(found):
        return False
    expected, found, labelled = _without_labels(expected, found)
    if ordered or labelled or all(item.op == "sym" and len(item.args[0]) > 1 for item in expected):
        return all(same(g, a, budget) for g, a in zip(expected, found, strict=True))
    return _match(expected, found, budget)


def _without_labels(expected: list[Node], found: list[Node]) -> tuple[list[Node], list[Node], bool]:
    """Drops `x =` where only one side has it. True where the labels differ, so that order carries meaning."""
    labels = [_label(item) for item in expected], [_label(item) for item in found]
    named = [any(side) for side in labels]
    if all(named) or not any(named):
        return expected, found, False
    different = len({label.partition("_")[0] for side in labels for label in side if label}) > 1
    return [_value(item) for item in expected], [_value(item) for item in found], different


def _label(item: Node) -> str | None:
    if item.op == "rel" and item.args[0] == ("=",) and item.args[1].op == "sym":
        return item.args[1].args[0]
    return None


def _value(item: Node) -> Node:
    return item.args[-1] if _label(item) is not None else item


def _match(expected: list[Node], found: list[Node], budget: Budget) -> bool:
    """A one-to-one matching; equality is transitive, so the first partner will do."""
    rest = list(found)
    for item in expected:
        partner = next((index for index, other in enumerate(rest) if same(item, other, budget)), None)
        if partner is None:
            return False
        rest.pop(partner)
    return True


# Points, intervals, matrices, ratios.


def _same_tuple(gold: Node, answer: Node, budget: Budget) -> bool:
    """Items in order. Two items may be an interval, so their brackets count; more are a point in either kind."""
    if len(gold.args) != len(answer.args):
        return False
    brackets = gold.args[:2], answer.args[:2]
    if brackets[0] != brackets[1] and (len(gold.args) == 4 or not set(brackets) <= {("(", ")"), ("[", "]")}):
        return False
    return all(same(g, a, budget) for g, a in zip(gold.args[2:], answer.args[2:], strict=True))


def _matrix(node: Node) -> Node | None:
    """A matrix with a scalar in front multiplied in."""
    if node.op == "matrix":
        return node
    if node.op == "tuple":  # [[1, 2], [3, 4]]
        rows = node.args[2:]
        nested = all(row.op == "tuple" and len(row.args) == len(rows[0].args) for row in rows)
        return Node("matrix", ("matrix", *(row.args[2:] for row in rows))) if nested and node.args[0] == "[" else None
    if node.op == "neg":
        inner = _matrix(node.args[0])
        return inner and _scaled(inner, lambda entry: Node("neg", (entry,)))
    if node.op == "div":
        inner = _matrix(node.args[0])
        return inner and _scaled(inner, lambda entry: Node("div", (entry, node.args[1])))
    if node.op == "mul":
        matrices = [_matrix(factor) for factor in node.args]
        if sum(matrix is not None for matrix in matrices) == 1:
            scalars = tuple(factor for factor, matrix in zip(node.args, matrices, strict=True) if matrix is None)
            inner = next(matrix for matrix in matrices if matrix is not None)
            return _scaled(inner, lambda entry: Node("mul", (*scalars, entry)))
    return None


def _scaled(matrix: Node, change: Callable[[Node], Node]) -> Node:
    kind, *rows = matrix.args
    return Node("matrix", (kind, *(tuple(change(entry) for entry in row) for row in rows)))


def _same_matrix(gold: Node, answer: Node, budget: Budget) -> bool:
    if gold.args[0] != answer.args[0] or len(gold.args) != len(answer.args):
        return False
    for row, other in zip(gold.args[1:], answer.args[1:], strict=True):
        if len(row) != len(other) or not all(same(g, a, budget) for g, a in zip(row, other, strict=True)):
            return False
    return True


def _same_ratio(gold: Node, answer: Node, budget: Budget) -> bool:
    """Proportional parts; a gold that reads as a time, such as 9:24, is that time only."""
    expected, found = (node.args if node.op in ("ratio", "time") else _fraction(node) for node in (gold, answer))
    if len(expected) != len(found):
        return False
    if gold.op == "time":
        return answer.op == "time" and all(equal(g, a, budget) for g, a in zip(expected, found, strict=True))
    if any(equal(part, Node("num", (Fraction(0),)), budget) for part in (*expected, *found)):
        return expected == found
    pairs = zip(pairwise(expected), pairwise(found), strict=True)
    return all(equal(Node("mul", (g, d)), Node("mul", (h, c)), budget) for (g, h), (c, d) in pairs)


def _fraction(node: Node) -> tuple[Node, ...]:
    return node.args if node.op == "div" else (node, Node("num", (Fraction(1),)))


# Equations and inequalities.


def _same_relation(gold: Node, answer: Node, budget: Budget) -> bool:
    for node, other, flip in ((gold, answer, False), (answer, gold, True)):
        if node.op == "rel" and "~" in node.args[0]:
            return any(same(*((other, side) if flip else (side, other)), budget) for side in _close_sides(node, budget))
    if gold.op == "rel" and answer.op == "rel":
        return _same_statement(gold, answer, budget)
    if gold.op == "rel":
        if not names(gold):  # 0.56 = 56 %
            return any(same(side, answer, budget) for side in gold.args[1:])
        # x = 5 is answered by 5, and the equation of a circle is not answered by its right side.
        named = any(side.op in ("sym", "fn", "tuple") for side in gold.args[1:])
        value = _stated_value(gold, budget) if named else None
        return value is not None and same(value, answer, budget)
    value = _stated_value(answer, budget)
    return value is not None and same(gold, value, budget)


def _close_sides(node: Node, budget: Budget) -> list[Node]:
    """What an approximate equality states: both sides when they are numbers within a percent, else the last one."""
    relations, *sides = node.args
    groups: list[list[Node]] = [[sides[0]]]
    for relation, side in zip(relations, sides[1:], strict=True):
        if relation == "~":
            groups.append([side])
        else:
            groups[-1].append(side)
    values = [group[-1] for group in groups]
    if names(values[0]):
        return values[1:2]
    numbers = [exact.as_rational(evaluate(value, {}, budget)) for value in values]
    for a, b in pairwise(numbers):
        if a is not None and b is not None and abs(a - b) > _APPROXIMATELY * abs(a):
            return []
    return values


def _stated_value(statement: Node, budget: Budget) -> Node | None:
    """What an equation says a quantity is: `5` for `x = 5`, `m + n = 5` and `5 = x`; None for other statements."""
    relations, *sides = statement.args
    if relations == ("in",):
        return sides[1]
    if any(relation != "=" for relation in relations):
        return None
    first, last = sides[0], sides[-1]
    first_names, last_names = _names(first), _names(last)
    if first_names is None or last_names is None:  # (x, y) = (1, 2) and the like
        return last
    if first_names:
        zero = last == Node("num", (Fraction(0),))
        return None if zero and first.op not in ("sym", "fn") else last
    if last_names:
        return first
    return last if all(equal(side, last, budget) for side in sides[:-1]) else None


def _names(node: Node) -> set[str] | None:
    return None if node.op in ("tuple", "set", "matrix") else names(node)


def _same_statement(gold: Node, answer: Node, budget: Budget) -> bool:
    """Both are equations or inequalities: the same sides, in either direction, or proportional equations."""
    relations, *sides = gold.args
    others, *answers = answer.args
    flipped = tuple(FLIPPED.get(relation, relation) for relation in reversed(others))
    for candidate, ends in ((others, answers), (flipped, answers[::-1])):
        if relations == candidate and all(same(g, a, budget) for g, a in zip(sides, ends, strict=True)):
            return True
    return relations == others == ("=",) and _proportional(_difference(sides), _difference(answers), budget)


def _difference(sides: Sequence[Node]) -> Node:
    return Node("add", (sides[0], Node("neg", (sides[1],))))


def _proportional(a: Node, b: Node, budget: Budget) -> bool:
    """Whether a = c b for a rational number c other than zero, so that a = 0 and b = 0 are one equation."""
    for point in points(names(a) | names(b)):
        bottom = evaluate(b, point, budget)
        if exact.is_zero(bottom):
            return False
        ratio = exact.as_rational(exact.divide(evaluate(a, point, budget), bottom, budget))
        return bool(ratio) and equal(a, Node("mul", (Node("num", (ratio,)), b)), budget)
    return False
