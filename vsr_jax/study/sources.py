"""What a command reads: policies with names of their own, benchmarks (the micro tasks among them), stored responses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from vsr_jax.data import micro
from vsr_jax.data.benchmarks import load_benchmark
from vsr_jax.data.rows import Row
from vsr_jax.data.store import read_rollouts
from vsr_jax.data.strata import stratified
from vsr_jax.errors import UserError
from vsr_jax.parallel.rollout import own_mesh
from vsr_jax.parallel.rules import SAMPLER_RULES
from vsr_jax.study.policy import Policy, load_policy
from vsr_jax.support import MICRO_RULES, OpeningRules, load_rules

MICRO: Mapping[str, Callable[..., list[Row]]] = {
    "micro_math": micro.math_rows,
    "micro_instructions": micro.instruction_rows,
    "micro_joint": micro.joint_rows,
}
"""Evaluation prompts of the default micro world, as benchmarks."""

_MICRO_PROMPTS = 64


def load_rows(name: str, data: Path | None, limit: int | None, *, spread: bool = False) -> list[Row]:
    """The rows of a benchmark or of a micro task (64 prompts unless limited). Raises UserError as `load_benchmark`.

    Args:
      limit: first rows only; with `spread`, as many rows with the make-up of the whole (`stratified`).
    """
    if name not in MICRO:
        if spread and limit is not None:
            return stratified(load_benchmark(name, data), limit)
        return load_benchmark(name, data, limit=limit)
    if data is not None:
        raise UserError(f"benchmark {name} is made by the package; leave out the data file {data}")
    return MICRO[name](micro.DEFAULT, 0, _MICRO_PROMPTS if limit is None else limit, split="evaluation")


@dataclass(frozen=True)
class TaskDefaults:
    """What a benchmark is read with where the command line does not say.

    Attributes:
      framing: around the prompt; rules: of openings.
      require_stop, extract: as in `judge`.
    """

    framing: str
    rules: OpeningRules | None
    require_stop: bool
    extract: Any


def task_defaults(policy: Policy, benchmark: str, row: Row, framing: str, rules: Path | None) -> TaskDefaults:
    """Micro tasks have their own framing and rules; elsewhere `auto` takes the chat template where there is one."""
    own = load_rules(rules) if rules is not None else None
    small = benchmark in MICRO
    if framing == "auto":
        chat = bool(getattr(policy.tokenizer, "chat_template", None))
        if small:
            framing = "micro"
        elif row.task == "math":
            framing = "chat+boxed" if chat else "boxed"
        else:
            framing = "chat" if chat else "raw"
    if own is None and small:
        own = MICRO_RULES
    return TaskDefaults(framing, own, small, "boxed" if small else "auto")


def policy_names(paths: Sequence[str], names: Sequence[str]) -> list[str]:
    """Names for policies: those given, else the last part of each path that tells it from the others.

    Raises:
      UserError: another number of names than of policies, or names that repeat.
    """
    if names:
        if len(names) != len(paths) or len(set(names)) != len(names):
            raise UserError(f"--names: give {len(paths)} different names, one a policy; got {', '.join(names)}")
        return list(names)
    parts = [Path(path).parts or (path,) for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        found = [own[max(0, len(own) - depth)] for own in parts]
        if len(set(found)) == len(found):
            return found
    raise UserError(f"policies are given twice: {', '.join(paths)}; give different ones, or --names")


def load_policies(
    paths: Sequence[str],
    names: Sequence[str],
    *,
    dtype: str,
    revision: str | None = None,
    max_position: int | None = None,
    mesh: str = "",
) -> list[Policy]:
    """Loads policies under their names, onto a mesh of this process's devices where one is named.

    Raises:
      UserError: as `policy_names`, `load_policy` and `own_mesh`.
    """
    found, devices = policy_names(paths, names), own_mesh(mesh)
    how = {"dtype": dtype, "revision": revision, "max_position": max_position, "mesh": devices, "rules": SAMPLER_RULES}
    return [load_policy(path, name=name, **how) for path, name in zip(paths, found, strict=True)]


def stored_responses(folder: Path, *, prompts: int | None, samples: int | None) -> pa.Table:
    """The rollouts of a measured folder, optionally the first samples of the first prompts only.

    Raises:
      UserError: as `read_rollouts`.
    """
    table = read_rollouts(folder)
    ids = table["prompt_id"].to_pylist()
    kept = set(list(dict.fromkeys(ids))[:prompts])
    held = [
        name in kept and (samples is None or sample < samples)
        for name, sample in zip(ids, table["sample_id"].to_pylist(), strict=True)
    ]
    return table.filter(pa.array(held))
