"""Compiles a program for a slice of TPUs that is not there, and reads off what it would take."""

import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vsr_jax.parallel.hlo import Cost, program_cost
from vsr_jax.parallel.topology import Chip, hidden_noise

GIB = 2**30


@dataclass(frozen=True)
class Program:
    """A jitted function with the abstract arguments that it will be called with.

    Attributes:
      function: result of `jax.jit`.
      args: positional arguments; arrays as `jax.ShapeDtypeStruct` with a sharding, statics as they are.
      mesh: in which activations are laid out.
      kinds: parts of `args` by what they are (parameters, optimiser, cache), for the memory table.
      tokens: tokens that one call makes or reads, over all devices.
      flops: of one call over all devices, counted from the model: what has to be computed, recomputation included.
      trips: how often the loops run whose length is data (decode steps, micro-batches).
      within: parts of the temporaries that are known from the model: what the backward pass keeps, gradients.
      options: of the compiler, as the program is compiled where it runs.
    """

    name: str
    function: Any
    args: tuple[Any, ...]
    mesh: Any
    kinds: Mapping[str, Any]
    tokens: float
    flops: float
    trips: int = 1
    note: str = ""
    within: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """What the compiler said of one program, a device.

    Attributes:
      fits: whether it compiled within the memory.
      message: the compiler's own words where it did not.
      memory_gib: kind -> GiB; `temporaries` (without the parts of them that the program names) and `program` beside
        the kinds of the arguments.
      cost: FLOPs, bytes and collectives of one call.
      seconds: roofline time of one call by limit: compute, memory, links.
    """

    name: str
    fits: bool
    message: str
    memory_gib: Mapping[str, float]
    cost: Cost
    seconds: Mapping[str, float]
    tokens: float
    flops_needed: float
    devices: int
    compile_seconds: float
    note: str = ""

    @property
    def roofline(self) -> float:
        """Seconds of one call if every limit but the tightest were hidden behind it."""
        return max(self.seconds.values(), default=0.0)

    @property
    def bound(self) -> str:
        """The tightest limit."""
        return max(self.seconds, key=lambda name: self.seconds[name]) if self.seconds else ""

    @property
    def tokens_per_second(self) -> float:
        """Of the whole slice, at the roofline."""
        return self.tokens / self.roofline if self.roofline else 0.0

    @property
    def waste(self) -> float:
        """FLOPs compiled over FLOPs needed, minus 1: what is computed twice, or on several devices."""
        return self.cost.flops * self.devices / self.flops_needed - 1 if self.flops_needed else 0.0


def plan(program: Program, chip: Chip) -> Planned:
    """Compiles for the devices of the program's mesh and adds up what the program does."""
    began = time.monotonic()
    memory = {kind: local_bytes(tree) / GIB for kind, tree in program.kinds.items()}

    def result(fits: bool, message: str, cost: Cost, seconds: Mapping[str, float]) -> Planned:
        return Planned(
            name=program.name,
            fits=fits,
            message=message,
            memory_gib=memory,
            cost=cost,
            seconds=seconds,
            tokens=program.tokens,
            flops_needed=program.flops,
            devices=program.mesh.devices.size,
            compile_seconds=time.monotonic() - began,
            note=program.note,
        )

    with tempfile.TemporaryDirectory() as folder:
        # The compiled object cannot print every program (asynchronous collectives); the compiler itself can.
        options: Any = {**program.options, "xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        try:
            with jax.set_mesh(program.mesh), hidden_noise():
                compiled = program.function.lower(*program.args).compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            # Out of memory, or an error inside the compiler: either way this program cannot be run as it is.
            return result(False, _first_words(str(error)), Cost(), {})
        dumped = sorted(Path(folder).glob("*.after_codegen.txt"))
        text = dumped[-1].read_text() if dumped else compiled.as_text()
    stats = compiled.memory_analysis()
    rest = stats.argument_size_in_bytes / GIB - sum(memory.values())
    memory["inputs"] = max(rest, 0.0)
    memory["results"] = max(stats.output_size_in_bytes - stats.alias_size_in_bytes, 0) / GIB
    known = {kind: local_bytes(tree) / GIB for kind, tree in program.within.items()}
    temporaries = stats.temp_size_in_bytes / GIB
    if sum(known.values()) <= temporaries:
        memory |= known
        temporaries -= sum(known.values())
    memory["temporaries"] = temporaries
    memory["program"] = stats.generated_code_size_in_bytes / GIB
    cost = program_cost(text, trips=program.trips)
    seconds = {
        "compute": cost.flops / chip.flops,
        "memory": cost.bytes / chip.hbm_bytes,
        "links": sum(cost.collectives.values()) / chip.ici_bytes,
    }
    return result(True, "", cost, seconds)


def local_bytes(tree: Any) -> int:
    """Bytes of a tree of sharded arrays, or of their shapes, that lie on one device."""
    return sum(
        int(np.prod(x.sharding.shard_shape(x.shape))) * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(tree)
    )


def _first_words(message: str) -> str:
    """The sentence on memory out of the compiler's report."""
    found = re.search(r"Ran out of memory[^\n]*?(?:by [\d.]+\w+\.|hbm\.(?= |$))|Ran out of memory[^\n]*", message)
    return (found[0] if found else message.splitlines()[0])[:240]


def placed(tree: Any, shardings: Any) -> Any:
    """Shapes of a tree with where they lie, as arguments for a program that is only compiled."""
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings)
