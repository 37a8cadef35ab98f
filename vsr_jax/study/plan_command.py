"""`vsr plan`: compiles a study's stages for a slice of TPUs on any Linux machine and says whether and how they fit."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vsr_jax.errors import UserError
from vsr_jax.model.config import ModelConfig, parse_config, read_config
from vsr_jax.model.params import param_count
from vsr_jax.model.presets import preset
from vsr_jax.parallel.mesh import make_mesh, parse_mesh
from vsr_jax.parallel.plan import Planned, Program, plan
from vsr_jax.parallel.rollout import rollout_sizes
from vsr_jax.parallel.topology import parse_topology, slice_devices

STAGES = ("rollout", "update", "score")


@dataclass(frozen=True)
class PlanSettings:
    """What to plan; sizes of 0 are chosen.

    Attributes:
      model: preset name or model directory.
      topology: chip and slice shape, as in `v5e:4x4`.
      mesh: of updates and scoring, as in `fsdp=16`.
      rollout_mesh: of the sampler; see `rollout_sizes` when empty.
      stages: some of `STAGES`.
      rows: packed rows an update and a scoring call; one for each row shard when 0.
      micro: rows differentiated at a time; all when 0.
      length: tokens a row.
      slots: responses decoded together; as many as memory suggests when 0.
      samples: responses a prompt.
      prompt, response: tokens.
      price: of one chip an hour, in any currency; 0 leaves costs out.
      search: find the largest slots and rows that fit; of an update whose `rows` are given, the largest micro-batch.
    """

    model: str
    topology: str
    mesh: str = ""
    rollout_mesh: str = ""
    stages: tuple[str, ...] = STAGES
    rows: int = 0
    micro: int = 0
    length: int = 9216
    slots: int = 0
    samples: int = 32
    prompt: int = 1024
    response: int = 8192
    price: float = 0.0
    search: bool = False


def model_config(name: str, tokens: int = 0) -> ModelConfig:
    """The decoder of a directory with a `config.json`, or of a preset, computing in bfloat16.

    Args:
      tokens: rows of so many must fit; a shorter context is overridden, as a run would have to by name.
    """
    file = Path(name) / "config.json"
    config = parse_config(read_config(file) if file.exists() else preset(name), where=str(name), dtype="bfloat16")
    return replace(config, max_position=max(config.max_position, tokens))


def plan_stages(settings: PlanSettings, say: Callable[[str], None] = lambda text: None) -> list[Planned]:
    """Compiles the stages one after another.

    Args:
      say: told what is being compiled, since one takes up to a few minutes.

    Raises:
      UserError: an unknown stage, model, topology or mesh.
    """
    if unknown := sorted(set(settings.stages) - set(STAGES)):
        raise UserError(f"unknown stage {unknown[0]!r}; stages are {', '.join(STAGES)}")
    config = model_config(settings.model, max(settings.length, settings.prompt + settings.response))
    if config.max_position > (stated := model_config(settings.model).max_position):
        say(f"note: {settings.model} has a context of {stated} tokens; planned with {config.max_position} by override")
    chip, _ = parse_topology(settings.topology)
    devices = slice_devices(settings.topology)
    mesh = make_mesh(parse_mesh(settings.mesh or "fsdp=-1"), devices)
    chosen = parse_mesh(settings.rollout_mesh) or rollout_sizes(config, len(devices), chip.hbm_gib * 2**30)
    sampler = make_mesh(chosen, devices)

    def compiled(programs: Sequence[Program]) -> list[Planned]:
        done = []
        for program in programs:
            say(f"compiling {program.name}: {program.note}")
            done.append(plan(program, chip))
        return done

    def tried(make: Callable[[int], Sequence[Program]], size: int, unit: int) -> list[Planned]:
        attempt = lambda size: compiled(make(size))  # noqa: E731
        return largest(attempt, size, unit, say=say) if settings.search else attempt(size)

    found: list[Planned] = []
    for stage in settings.stages:
        unit = mesh.shape["data"] * mesh.shape["fsdp"]
        if stage == "rollout":
            unit = sampler.shape["data"] * sampler.shape["fsdp"]
            lanes = settings.slots // lane_slots(settings) or default_lanes(config, sampler, settings, chip.hbm_gib)
            found += tried(lambda n: _rollout(config, sampler, settings, n), lanes, unit)
        elif stage == "update" and settings.search and settings.rows:
            sizes = [n for n in range(unit, settings.rows + 1, unit) if settings.rows % n == 0] or [settings.rows]
            micro_batch = lambda n: _rows("update", config, mesh, settings, settings.rows, n)  # noqa: E731
            found += largest_of(lambda n, make=micro_batch: compiled(make(n)), sizes)
        else:
            made = lambda n, stage=stage: _rows(stage, config, mesh, settings, n, settings.micro)  # noqa: E731
            found += tried(made, settings.rows or unit, unit)
    return found


def _rows(
    stage: str, config: ModelConfig, mesh: Any, settings: PlanSettings, rows: int, micro: int
) -> Sequence[Program]:
    from vsr_jax.study.plan_stages import score_program, update_program

    if stage == "score":
        return [score_program(config, mesh, rows, settings.length)]
    return [update_program(config, mesh, rows, settings.length, micro or None)]


def _rollout(config: ModelConfig, mesh: Any, settings: PlanSettings, lanes: int) -> Sequence[Program]:
    from vsr_jax.study.plan_stages import rollout_programs

    return rollout_programs(config, mesh, lanes, lane_slots(settings), settings.prompt, settings.response)


def lane_slots(settings: PlanSettings) -> int:
    """Slots that share a prompt: as the sampler lays out a long queue, a quarter of the samples."""
    return max(settings.samples // 4, 1)


def default_lanes(config: ModelConfig, mesh: Any, settings: PlanSettings, hbm_gib: float) -> int:
    """Lanes whose cache fills two thirds of what the weights leave free, split over the mesh; one a shard at least."""
    tensor, shards = mesh.shape["tensor"], mesh.shape["data"] * mesh.shape["fsdp"]
    column = 4 * config.num_layers * config.num_kv_heads * config.head_dim / tensor
    lane = column * (2 * settings.prompt + lane_slots(settings) * settings.response)
    free = hbm_gib * 2**30 - 2 * param_count(config) / tensor
    return shards * max(int(2 / 3 * free / lane), 1)


def largest(
    attempt: Callable[[int], list[Planned]],
    size: int,
    unit: int,
    tries: int = 8,
    say: Callable[[str], None] = lambda text: None,
) -> list[Planned]:
    """The plans of the largest multiple of `unit` that fits: doubling or halving from `size`, then halving the gap.

    Within an eighth of it, or of what `tries` compilations found, which is then said. Returns the smallest attempt
    where not even `unit` fits.
    """
    good, bad, best, last = 0, 0, [], []
    size = max(size // unit, 1)
    for _ in range(tries):
        last = attempt(size * unit)
        if all(p.fits for p in last):
            good, best = size, last
        else:
            bad = size
        if (bad and bad - good <= max(good // 8, 1)) or bad == 1:
            break
        size = (good + bad) // 2 if bad and good else 2 * good if good else bad // 2
    else:
        say(f"note: the search ended after {tries} compilations; a larger size may fit")
    return best or last


def largest_of(attempt: Callable[[int], list[Planned]], sizes: Sequence[int]) -> list[Planned]:
    """The plans of the largest of rising sizes that fits, by halving; of the smallest where none does."""
    best: list[Planned] = []
    low, high = 0, len(sizes)
    while low < high:
        # The largest first: one compilation where everything fits.
        middle = (low + high) // 2 if best or high < len(sizes) else len(sizes) - 1
        found = attempt(sizes[middle])
        if all(p.fits for p in found):
            best, low = found, middle + 1
        else:
            high = middle
            best = best or (found if middle == 0 else [])
    return best


def table(plans: Sequence[Planned], price: float = 0.0) -> str:
    """Plans as text, one block a program."""
    return "\n\n".join("\n".join(_lines(p, price)) for p in plans)


def _lines(p: Planned, price: float) -> Iterator[str]:
    yield f"{p.name}: {p.note}"
    used = sum(p.memory_gib.values())
    memory = ", ".join(f"{kind} {gib:.2f}" for kind, gib in p.memory_gib.items() if gib >= 0.005)
    if not p.fits:
        yield f"  DOES NOT FIT: {p.message}"
        yield f"  HBM a chip, arguments only (GiB): {memory}"
        return
    yield f"  fits; HBM a chip {used:.2f} GiB: {memory}"
    yield (
        f"  {p.cost.flops / 1e12:.1f} TFLOP a chip ({p.waste:+.1%} of what the model needs), "
        f"{p.cost.bytes / 2**30:.1f} GiB of memory traffic, compiled in {p.compile_seconds:.0f} s"
    )
    if p.cost.unknown_kernels:
        yield f"  not counted: FLOPs of {', '.join(sorted(p.cost.unknown_kernels))}"
    kinds = sorted(p.cost.collectives.items())
    sent = ", ".join(f"{kind} {size / 2**30:.2f} GiB in {p.cost.counts[kind]:.0f}" for kind, size in kinds)
    yield f"  a chip sends: {sent or 'nothing'}"
    times = ", ".join(f"{name} {s * 1e3:.1f}" for name, s in p.seconds.items())
    yield f"  roofline (ms): {times}; bound by {p.bound}"
    yield f"  at most {p.tokens_per_second:,.0f} tokens/s on {p.devices} chips"
    if price and p.tokens_per_second:
        hour = price * p.devices
        yield f"  {hour:.2f} an hour; {hour / 3600 / p.tokens_per_second * 1e6:.3f} a million tokens"


def as_json(plans: Sequence[Planned]) -> str:
    """Plans as JSON, with the derived figures."""
    rows: list[Mapping[str, Any]] = []
    for p in plans:
        cost = {**asdict(p.cost), "unknown_kernels": sorted(p.cost.unknown_kernels)}
        derived = {"roofline": p.roofline, "bound": p.bound, "tokens_per_second": p.tokens_per_second, "waste": p.waste}
        rows.append({**asdict(p), "cost": cost, **derived})
    return json.dumps(rows, indent=1)
