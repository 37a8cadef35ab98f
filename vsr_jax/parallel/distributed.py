"""Several processes as one program: start-up, shares of the work, a barrier that says who is missing.

JAX's own multi-controller runtime does the work. Every process runs the same host code on the same seeds; what only
one process knows (its rollouts, its verdicts) is gathered as numbers before anyone decides on it.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from vsr_jax.errors import UserError

FLAGS = ("VSR_COORDINATOR", "VSR_PROCESSES", "VSR_PROCESS")
"""Environment variables that start several processes by hand: host:port of process 0, how many, and which one."""

TOGETHER_S = 86400.0
"""How long processes wait for each other in work whose length nobody knows. JAX's runtime notices sooner who died."""


@dataclass(frozen=True)
class Launch:
    """How this process was started.

    Attributes:
      by: flags, slurm, gke, cloud tpu, or alone.
      coordinator, processes, process: None where JAX finds them itself.
    """

    by: str
    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


def find_launch(environment: Mapping[str, str]) -> Launch:
    """Reads an environment; explicit flags come before what a cluster says.

    Raises:
      UserError: some of `FLAGS` are set and not all, or they make no sense.
    """
    given = {name: environment[name] for name in FLAGS if environment.get(name)}
    if given:
        if len(given) < len(FLAGS):
            missing = next(name for name in FLAGS if name not in given)
            raise UserError(
                f"{missing} is not set, but {next(iter(given))} is; several processes need {', '.join(FLAGS)}"
            )
        coordinator, processes, process = (given[name] for name in FLAGS)
        if not (processes.isdigit() and process.isdigit() and int(process) < int(processes)):
            raise UserError(f"VSR_PROCESS {process!r} is not one of 0 to VSR_PROCESSES {processes!r} minus 1")
        if ":" not in coordinator:
            raise UserError(f"VSR_COORDINATOR {coordinator!r} has no port; give host:port")
        return Launch("flags", coordinator, int(processes), int(process))
    if int(environment.get("SLURM_NTASKS", "1")) > 1 and "SLURM_PROCID" in environment:
        return Launch("slurm")
    hosts = [host for host in environment.get("TPU_WORKER_HOSTNAMES", "").split(",") if host]
    if len(hosts) > 1 or int(environment.get("MEGASCALE_NUM_SLICES", "1")) > 1:
        return Launch("gke" if "KUBERNETES_SERVICE_HOST" in environment else "cloud tpu")
    return Launch("alone")


def start(launch: Launch | None = None, *, timeout_s: int = 300) -> Launch:
    """Joins the other processes; returns at once where there are none. Call before anything else uses JAX.

    Args:
      launch: `find_launch(os.environ)` when None.
      timeout_s: how long to wait for all of them.

    Raises:
      UserError: they do not come together in time, or the launcher's variables are incomplete.
    """
    launch = launch or find_launch(os.environ)
    if launch.by == "alone":
        return launch
    try:
        jax.distributed.initialize(
            launch.coordinator, launch.processes, launch.process, initialization_timeout=timeout_s
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(f"could not join the other processes ({launch.by}): {str(error).splitlines()[0]}") from None
    return launch


def barrier(name: str, *, timeout_s: float = 600.0) -> None:
    """Waits until every process has come to the barrier of this name; a name serves once.

    Raises:
      UserError: some did not come in time; names them.
    """
    if jax.process_count() == 1:
        return
    client = _client()
    client.key_value_set(f"vsr/barrier/{name}/{jax.process_index()}", "here")
    deadline, missing = time.monotonic() + timeout_s, []
    for process in sorted({*range(jax.process_count())} - {jax.process_index()}):
        # Who came in time is asked even when another one has used the time up, and the answer takes a moment.
        left = max(deadline - time.monotonic(), 1.0)
        try:
            client.blocking_key_value_get(f"vsr/barrier/{name}/{process}", int(1000 * left))
        except jax.errors.JaxRuntimeError:
            missing.append(process)
    if missing:
        who = ", ".join(map(str, missing))
        raise UserError(
            f"barrier {name!r}: process {who} of {jax.process_count()} did not come within {timeout_s:g} s; "
            "look at its log, it is stuck or gone"
        )


def tell(name: str, text: str) -> None:
    """Leaves a word for the other processes; a name serves once."""
    if jax.process_count() > 1:
        _client().key_value_set(f"vsr/word/{name}", text)


def hear(name: str, *, timeout_s: float) -> str:
    """The word that another process left under this name, waiting for it.

    Raises:
      UserError: it did not come in time.
    """
    try:
        return _client().blocking_key_value_get(f"vsr/word/{name}", int(1000 * timeout_s))
    except jax.errors.JaxRuntimeError:
        raise UserError(f"{name}: no word from process 0 within {timeout_s:g} s; look at its log") from None


def _client() -> Any:
    # JAX has no public name for its key-value store.
    from jax._src import distributed

    return distributed.global_state.client


def local_rows(count: int, process: int | None = None, processes: int | None = None) -> range:
    """Global ids of the rows that one process works on: consecutive, all shares within one of each other."""
    process = jax.process_index() if process is None else process
    processes = jax.process_count() if processes is None else processes
    return range(count * process // processes, count * (process + 1) // processes)


def gather_rows(tree: Any, counts: list[int] | None = None) -> Any:
    """Joins the processes' numpy arrays along their first axis, in the order of processes; all get the whole.

    Args:
      tree: arrays that differ between processes in their first size at most.
      counts: rows of each process, where they differ.
    """
    if jax.process_count() == 1:
        return tree
    most = max(counts) if counts else None

    def join(x: np.ndarray) -> np.ndarray:
        x = np.ascontiguousarray(x)
        # As bytes, since JAX would make 64-bit numbers 32-bit ones.
        rows = x.reshape(len(x), -1).view(np.uint8)
        rows = np.pad(rows, ((0, most - len(x)), (0, 0))) if most is not None else rows
        every = multihost_utils.process_allgather(rows)
        parts = [part[:count] for part, count in zip(every, counts or [len(x)] * len(every), strict=True)]
        return np.ascontiguousarray(np.concatenate(parts)).view(x.dtype).reshape(-1, *x.shape[1:])

    return jax.tree.map(join, tree)


def place_host(tree: Any, shardings: Any) -> Any:
    """Host arrays, the same on every process, as arrays of a mesh over all of them; each sends its own pieces.

    Arrays that lie where they should already stay as they are.
    """

    def place(x: Any, sharding: Any) -> jax.Array:
        if isinstance(x, jax.Array) and x.sharding.is_equivalent_to(sharding, x.ndim):
            return x
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    return jax.tree.map(place, tree, shardings)


def agree(name: str, values: Any) -> None:
    """Checks that host values (a data order, a step, settings) are the same on every process.

    Raises:
      UserError: this process and process 0 differ.
    """
    if jax.process_count() == 1:
        return
    mine = np.frombuffer(repr(values).encode()[:4096].ljust(4096), np.uint8)
    if not np.array_equal(multihost_utils.broadcast_one_to_all(mine), mine):
        raise UserError(
            f"process {jax.process_index()} and process 0 disagree on {name}: here it is {values!r:.120}; "
            "start all processes with the same command and files"
        )
