"""Checkers that serve as rewards: pure functions of (row, response) with a bounded time.

Attributes load on first use, so that importing this package costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsr_jax.verifiers.instructions import check_instructions
    from vsr_jax.verifiers.joint import check_joint
    from vsr_jax.verifiers.math import check_math
    from vsr_jax.verifiers.pool import Pool
    from vsr_jax.verifiers.types import JointVerdict, Verdict

_HOMES = {
    "Verdict": "types",
    "JointVerdict": "types",
    "check_math": "math",
    "check_instructions": "instructions",
    "check_joint": "joint",
    "Pool": "pool",
}

__all__ = ["JointVerdict", "Pool", "Verdict", "check_instructions", "check_joint", "check_math"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
