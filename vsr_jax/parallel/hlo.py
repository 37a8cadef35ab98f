"""What one compiled program does on one device, read off its optimised HLO text.

The compiler's own totals count a loop's body once. Here a body counts as often as it runs, where the trip count is a
constant of the program; the caller says how often the other loops run.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

_BITS = {"pred": 8, "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "f8e4m3fn": 8, "f8e5m2": 8}
_BITS |= {f"{sign}{bits}": bits for sign in "su" for bits in (4, 8, 16, 32, 64)}
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^}]*)\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.\-]+) = (.*)$")
_FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "replica-id"}
_FREE |= {"iota", "opt-barrier", "while", "conditional", "call", "async-start", "async-update"}
"""Moves no bytes of its own: the computations that it calls do. What ends in `-done` counts where it started."""
COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")


@dataclass(frozen=True)
class Array:
    """One array of an instruction's result. `hbm` is False where the layout puts it in a chip's on-core memory."""

    shape: tuple[int, ...]
    bytes: float
    hbm: bool


@dataclass(frozen=True)
class Instruction:
    """One line of HLO: its operands by name, the text between its parentheses and the text after them."""

    name: str
    opcode: str
    result: tuple[Array, ...]
    operands: tuple[str, ...]
    inner: str
    rest: str
    root: bool

    @property
    def hbm(self) -> float:
        """Bytes of the result that lie in device memory."""
        return sum(a.bytes for a in self.result if a.hbm)


@dataclass
class Cost:
    """Sums over one run of the program on one device.

    Attributes:
      flops: of matrix products and of attention kernels, 2 a multiply-add.
      bytes: read from and written to device memory.
      collectives: kind -> bytes that a device sends, summed over the runs.
      counts: kind -> number of runs.
      unknown_loops: loops whose trip count the program does not fix.
      unknown_kernels: custom kernels whose FLOPs are not counted.
    """

    flops: float = 0.0
    bytes: float = 0.0
    collectives: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    unknown_loops: int = 0
    unknown_kernels: set[str] = field(default_factory=set)


def program_cost(text: str, *, trips: int = 1) -> Cost:
    """Adds up a program.

    Args:
      text: `compiled.as_text()`.
      trips: how often a loop runs whose trip count is not in the program (a decode loop, micro-batches).
    """
    computations, entry = parse(text)
    cost, seen = Cost(), set()
    types = {i.name: i for body in computations.values() for i in body}
    for name, times, inside in _runs(computations, entry, 1.0, trips, cost):
        for i in computations[name]:
            cost.flops += times * _flops(i, types, cost)
            _add_collective(cost, i, name, types, times, seen)
            if not inside:
                cost.bytes += times * _traffic(i, types, computations)
    return cost


def parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Computations by name, and the name of the one that the program starts with."""
    computations: dict[str, list[Instruction]] = {}
    entry, body = "", []
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            body = computations.setdefault(header[2], [])
            entry = header[2] if header[1] else entry
        elif (found := _INSTRUCTION.match(line)) and (made := _instruction(found)):
            body.append(made)
    return computations, entry


def _instruction(found: re.Match[str]) -> Instruction | None:
    text = re.sub(r"/\*.*?\*/", "", found[3])
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    result, text = text[:end], text[end:].lstrip()
    opcode, _, _ = text.partition("(")
    if opcode == text:
        return None
    stop = _closing(text, len(opcode))
    arrays = tuple(_array(*m) for m in _ARRAY.findall(result))
    inner = text[len(opcode) + 1 : stop]
    return Instruction(found[2], opcode, arrays, tuple(_NAME.findall(inner)), inner, text[stop:], bool(found[1]))


def _closing(text: str, start: int) -> int:
    """Index of the parenthesis that closes the one at `start`, or the last index."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    return len(text) - 1


def _array(kind: str, sizes: str, layout: str) -> Array:
    shape = tuple(int(n) for n in sizes.split(",") if n)
    return Array(shape, _BITS.get(kind, 0) / 8 * math.prod(shape), "S(" not in layout)


def _runs(
    computations: Mapping[str, list[Instruction]], name: str, times: float, trips: int, cost: Cost, inside: bool = False
) -> Iterator[tuple[str, float, bool]]:
    """Every computation that runs: its name, how often, and whether it is the inside of a fusion."""
    yield name, times, inside
    for i in computations[name]:
        if i.opcode == "while":
            condition, body = _called(i, "condition"), _called(i, "body")
            known = _stated_trips(i) or _trip_count(computations[condition], computations[body])
            cost.unknown_loops += known is None
            yield from _runs(computations, body, times * (trips if known is None else known), trips, cost, inside)
        elif i.opcode == "conditional":
            # One branch runs; the plain one stands for it (a policy sampled as it is, without truncation).
            branches = [n for n in _NAME.findall(i.rest.split("metadata")[0]) if n in computations]
            plain = min(branches, key=lambda n: len(computations[n]))
            yield from _runs(computations, plain, times, trips, cost, inside)
        elif i.opcode in ("fusion", "call", "async-start"):
            called = _called(i, "calls") or _called(i, "to_apply")
            if called in computations:
                yield from _runs(computations, called, times, trips, cost, inside or i.opcode == "fusion")


def _called(i: Instruction, key: str) -> str:
    found = re.search(rf"\b{key}=%([\w.\-]+)", i.rest)
    return found[1] if found else ""


def _stated_trips(i: Instruction) -> int | None:
    """The trip count that compilers other than the TPU's write beside a loop."""
    found = re.search(r'"known_trip_count":\{"n":"(\d+)"', i.rest)
    return int(found[1]) if found else None


def _trip_count(condition: list[Instruction], body: list[Instruction]) -> int | None:
    """n / step of a loop from 0 with a constant n; the compiler unrolls some by a step of 2."""
    made = {i.name: i for i in condition}
    test = next(i for i in condition if i.root)
    if test.opcode != "compare" or "direction=LT" not in test.rest:
        return None
    counter, bound = (made[name] for name in test.operands)
    if counter.opcode != "get-tuple-element" or bound.opcode != "constant":
        return None
    return -(-int(bound.inner) // _step(int(counter.rest.split("index=")[1].split(",")[0]), body))


def _step(place: int, body: list[Instruction]) -> int:
    """What a loop body adds to entry `place` of its state; 1 where it is not a plain sum with a constant."""
    made = {i.name: i for i in body}
    root = next(i for i in body if i.root)
    update = made.get(root.operands[place]) if root.opcode == "tuple" else None
    if update is None or update.opcode != "add":
        return 1
    return next((int(made[name].inner) for name in update.operands if made[name].opcode == "constant"), 1)


def _flops(i: Instruction, types: Mapping[str, Instruction], cost: Cost) -> float:
    if i.opcode in ("dot", "convolution"):
        left, right = (types[name].result[0] for name in i.operands[:2])
        return _dot_flops(i, left) if i.opcode == "dot" else _convolution_flops(i, left, right)
    if i.opcode == "custom-call" and "tpu_custom_call" in i.rest:
        return _kernel_flops(i, types, cost)
    return 0.0


def _dot_flops(i: Instruction, left: Array) -> float:
    found = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", i.rest)
    dims = [int(n) for n in found[1].split(",") if n] if found else []
    return 2.0 * math.prod(i.result[0].shape) * math.prod(left.shape[d] for d in dims)


def _convolution_flops(i: Instruction, left: Array, right: Array) -> float:
    """The TPU compiler writes matrix products as convolutions, batch dimensions as spatial ones with dilation."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", i.rest)
    assert labels, i.rest
    inputs, kernel, output = labels.groups()
    window = {k: v.split("x") for k, v in re.findall(r"(\w+)=([\dx_\-]+)", _braces(i.rest, "window="))}
    spatial = sorted(c for c in output if c.isdigit())

    def at(key: str, n: int, default: str) -> str:
        return window[key][n] if key in window else default

    total = 2.0 * i.result[0].shape[output.index("b")] * math.prod(right.shape[kernel.index(c)] for c in "io")
    for n, axis in enumerate(spatial):
        low = int(at("pad", n, "0_0").split("_")[0])
        stride, dilate = int(at("stride", n, "1")), int(at("lhs_dilate", n, "1"))
        spread, size = int(at("rhs_dilate", n, "1")), left.shape[inputs.index(axis)]
        # Products with padding or with the holes of a dilated input cost nothing.
        hits = 0
        for k in range(right.shape[kernel.index(axis)]):
            for o in range(i.result[0].shape[output.index(axis)]):
                position = o * stride + k * spread - low
                hits += 0 <= position <= (size - 1) * dilate and position % dilate == 0
        total *= hits
    return total


def _braces(text: str, key: str) -> str:
    """What stands in the braces after `key`."""
    _, found, tail = text.partition(key)
    return tail[1 : tail.index("}")] if found else ""


def _kernel_flops(i: Instruction, types: Mapping[str, Instruction], cost: Cost) -> float:
    """Causal attention kernels by name: 2 matrix products forward, 5 backward, over half of the T x T scores."""
    # The queries are the largest operand, [rows, heads, T, head_dim] or without rows where there is one.
    operands = [a.shape for name in i.operands if name in types for a in types[name].result if len(a.shape) >= 3]
    queries = max(operands, key=lambda shape: (math.prod(shape), len(shape)), default=None)
    products = {"splash_mha_fwd": 2, "splash_mha_dkv": 5}
    count = next((n for name, n in products.items() if i.name.startswith(name)), None)
    if count is None or queries is None:
        cost.unknown_kernels.add(re.sub(r"[.\d]+$", "", i.name))
        return 0.0
    *heads, t, d = queries
    return count * 2.0 * math.prod(heads) * t * t * d / 2


def _add_collective(
    cost: Cost, i: Instruction, where: str, types: Mapping[str, Instruction], times: float, seen: set[str]
) -> None:
    kind = i.opcode.removesuffix("-start")
    if kind not in COLLECTIVES:
        return
    # A collective that the compiler spreads over several fusions appears in each of them, under one channel.
    channel = re.search(r"channel_id=(\d+)", i.rest)
    key = channel[1] if channel else i.name
    if key in seen:
        return
    seen.add(key)
    group = _group_size(i.rest)
    share = (group - 1) / group if group else 1.0
    sent = sum(a.bytes for name in i.operands for a in types[name].result) if i.operands else 0.0
    if where.startswith("all-reduce-scatter"):
        kind = "reduce-scatter"
    factor = {"all-gather": group - 1 if group else 1.0, "all-reduce": 2 * share, "collective-permute": 1.0}
    cost.collectives[kind] = cost.collectives.get(kind, 0.0) + times * sent * factor.get(kind, share)
    cost.counts[kind] = cost.counts.get(kind, 0.0) + times


def _group_size(rest: str) -> int:
    """Devices that take part together; 0 where the text does not say."""
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", rest):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        return math.prod(int(sizes.get(axis, 1)) for axis in re.findall(r"'(\w+)'", named[2]))
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", rest):
        return listed[1].count(",") + 1
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]", rest):
        return int(iota[2])
    return 0


def _traffic(i: Instruction, types: Mapping[str, Instruction], computations: Mapping[str, list[Instruction]]) -> float:
    """Bytes of device memory that one instruction outside fusions reads and writes."""
    if i.opcode in _FREE or i.opcode.endswith("-done"):
        return 0.0
    if i.opcode == "custom-call" and "tpu_custom_call" not in i.rest:
        return 0.0  # bookkeeping of the compiler: buffers, bit casts, waits
    if i.opcode == "fusion":
        return _fusion_traffic(i, types, computations)
    if i.opcode.endswith("-start"):
        # The result lists the source, the target and flags; of a slice only the target's size moves.
        parts = [a for a in i.result if len(a.shape) > 0 and a.bytes > 64]
        if i.opcode == "slice-start" and len(parts) >= 2:
            return parts[1].bytes * (parts[0].hbm + parts[1].hbm)
        return sum(a.bytes for a in parts if a.hbm)
    operands = [types[name] for name in i.operands if name in types]
    if i.opcode in ("dynamic-slice", "slice", "gather"):
        return i.hbm + (sum(a.bytes for a in i.result) if operands and operands[0].hbm else 0.0)
    if i.opcode == "dynamic-update-slice":
        update = operands[1]
        return update.hbm + (sum(a.bytes for a in update.result) if i.hbm else 0.0)
    return i.hbm + sum(o.hbm for o in operands)


def _fusion_traffic(
    i: Instruction, types: Mapping[str, Instruction], computations: Mapping[str, list[Instruction]]
) -> float:
    """Operands that a fusion only slices count as their slices; a result that it updates in place, as the update."""
    body = computations.get(_called(i, "calls"), [])
    parameters = {int(p.inner): p for p in body if p.opcode == "parameter"}
    total = 0.0
    for n, name in enumerate(i.operands):
        if name in types and types[name].hbm:
            total += _read(parameters[n], body, computations) if n in parameters else types[name].hbm
    roots = [j for j in body if j.root]
    inside = {j.name: j for j in body}
    written = [inside[n] for n in roots[0].operands] if roots and roots[0].opcode == "tuple" else roots
    for array, made in zip(i.result, written, strict=False):
        while made.opcode in ("bitcast", "copy") and made.operands[0] in inside:
            made = inside[made.operands[0]]
        if array.hbm:
            update = made.opcode == "dynamic-update-slice"
            total += sum(a.bytes for a in inside[made.operands[1]].result) if update else array.bytes
    return total


def _read(
    p: Instruction,
    body: list[Instruction],
    computations: Mapping[str, list[Instruction]],
    after: Callable[[], float] | None = None,
) -> float:
    """Bytes of a fusion's parameter that it reads.

    Args:
      after: what the surrounding fusion reads of the value, where it leaves a nested one as it came.
    """
    whole = sum(a.bytes for a in p.result)
    total = (whole if after is None else after()) if p.root else 0.0
    for user in (j for j in body if p.name in j.operands):
        if user.opcode in ("dynamic-slice", "slice", "gather") and user.operands[0] == p.name:
            total += sum(a.bytes for a in user.result)
        elif user.opcode == "bitcast":
            total += _read(user, body, computations, after)
        elif user.opcode == "fusion":
            nested = computations[_called(user, "calls")]
            inner = [q for q in nested if q.opcode == "parameter" and user.operands[int(q.inner)] == p.name]
            on = partial(_read, user, body, computations, after)
            total += sum(_read(q, nested, computations, on) for q in inner)
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == p.name:
            continue  # written in place, not read
        else:
            return whole
    return min(total, whole)
