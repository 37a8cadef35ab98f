"""Verifier-induced support reshaping in on-policy optimization, as pure-functional JAX.

Names below are loaded on first use, so that `import vsr_jax` does not import JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsr_jax import support, verifiers
    from vsr_jax.model.checkpoint_io import load_model, save_model
    from vsr_jax.sampling.sampler import sample
    from vsr_jax.sampling.types import Rollouts, SamplingParams
    from vsr_jax.scoring import token_logprobs

_HOMES = {
    "load_model": "vsr_jax.model.checkpoint_io",
    "save_model": "vsr_jax.model.checkpoint_io",
    "sample": "vsr_jax.sampling.sampler",
    "Rollouts": "vsr_jax.sampling.types",
    "SamplingParams": "vsr_jax.sampling.types",
    "token_logprobs": "vsr_jax.scoring",
}
_ROOMS = ("support", "verifiers")

__all__ = ["Rollouts", "SamplingParams", "load_model", "sample", "save_model", "support", "token_logprobs", "verifiers"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"vsr_jax.{name}")
    raise AttributeError(f"module 'vsr_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
