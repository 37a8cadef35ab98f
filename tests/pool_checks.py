"""Checks that misbehave, in a module of their own so that worker processes can import them."""

import os
import time

from vsr_jax.errors import UserError
from vsr_jax.verifiers import Verdict, check_math

RIGHT = Verdict(True, (True,), 1.0, "correct")


def check(item):
    """`item` says what happens."""
    kind, *rest = item
    if kind == "hang":
        while True:
            pass
    if kind == "sleep":
        time.sleep(rest[0])
    if kind == "die":
        os._exit(3)
    if kind == "raise":
        raise ValueError("no such luck")
    if kind == "malformed":
        raise UserError("row 7: field `answer`: is empty")
    if kind == "nonsense":
        return 0.5
    if kind == "math":
        return check_math(*rest)
    return RIGHT
