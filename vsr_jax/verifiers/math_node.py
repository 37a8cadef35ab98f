r"""The tree of a parsed answer.

One node type; `op` says what `args` holds:

  num      a Fraction
  sym      a name: a letter, a named symbol, or words
  const    "pi", "e", "i" or "inf"
  add mul  two or more nodes;  div: numerator, denominator;  pow: base, exponent;  neg, pm, mp: one node
  fn       a name, then argument nodes
  deg pct  one node, with a degree or percent sign;  unit: a node and the name of its unit
  tuple    the opening and closing bracket, then two or more nodes: a point or an interval
  set      nodes, in braces;  bag: the word between them ("," "and" "or"), then nodes
  builder  a node and its condition nodes: {x : x > 3}
  cup cap setminus   two nodes
  reals    nothing
  matrix   "matrix" or "vmatrix" or another environment, then rows (tuples of nodes)
  rel      a tuple of relation names, then one node more than there are relations
  ratio    two or more nodes;  time: two or more numbers, those behind a colon printed with two digits
  base     digits (str), base (int)
"""

from typing import Any, NamedTuple

CALLABLE = frozenset("fgh")  # f(x) is an application, x(x + 1) a product


class Node(NamedTuple):
    """An operation and what it applies to."""

    op: str
    args: tuple[Any, ...]

    def children(self) -> tuple["Node", ...]:
        """The nodes among the arguments, those in matrix rows included."""
        found = []
        for argument in self.args:
            if isinstance(argument, Node):
                found.append(argument)
            elif type(argument) is tuple:
                found.extend(part for part in argument if isinstance(part, Node))
        return tuple(found)


class ParseFailure(Exception):
    """The answer is not in the grammar; it is then compared as a string only."""
