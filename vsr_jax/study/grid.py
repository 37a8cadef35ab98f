"""Policies x benchmarks: measured one policy at a time, a folder a cell, taken up where it stopped."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.parallel.rollout import own_mesh
from vsr_jax.parallel.rules import SAMPLER_RULES
from vsr_jax.study.measure import Measurement, MeasureSettings, sample_to_store, summarise
from vsr_jax.study.policy import Policy, load_policy
from vsr_jax.study.runs import claim_folder
from vsr_jax.study.sources import TaskDefaults, load_rows, policy_names, task_defaults
from vsr_jax.support import OpeningRules
from vsr_jax.verifiers import Pool
from vsr_jax.verifiers.math_extract import Extract


@dataclass(frozen=True)
class Decoding:
    """How responses are drawn; fields as in `MeasureSettings`."""

    samples: int
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    top_k: int = 0


DECODINGS: Mapping[str, Decoding] = {
    "plain": Decoding(32, 1024, 1.0, 1.0, 1234),
    "support": Decoding(32, 8192, 1.0, 0.7, 1234),
    "math500_plan": Decoding(16, 12_288, 0.7, 0.95, 42),
    "aime_plan": Decoding(32, 12_288, 0.7, 0.95, 42),
    "opd_validation": Decoding(16, 31_744, 0.7, 0.95, 42),
    "joint": Decoding(16, 4096, 0.7, 0.95, 42),
}
"""Decoding by name. `plain` draws from the policy itself; the others are those of the paper's measurements. The plan's
seed is 42 plus the sample's number there; here every sample has a key of its own under the one seed."""


def decoding(preset: str, **changes: Any) -> Decoding:
    """A preset with the changes that are not None. Raises UserError on an unknown name."""
    if preset not in DECODINGS:
        raise UserError(f"--decoding {preset}: unknown; choose one of {', '.join(DECODINGS)}")
    return replace(DECODINGS[preset], **{name: value for name, value in changes.items() if value is not None})


@dataclass(frozen=True)
class Source:
    """A benchmark as asked for: its name, its file where it has one, and its rows."""

    name: str
    data: Path | None
    rows: Sequence[Row]


@dataclass(frozen=True)
class Cell:
    """One policy on one benchmark, measured.

    Attributes:
      policy, benchmark: names.
      folder: where the rollouts lie; table: the rollouts; rows: the prompts.
      rules: that openings were named with.
      result: summed up.
    """

    policy: str
    benchmark: str
    folder: Path
    table: pa.Table
    rows: Sequence[Row]
    rules: OpeningRules | None
    result: Measurement


def load_sources(
    benchmarks: Sequence[str], data: Sequence[Path], limit: int | None, *, spread: bool = False
) -> list[Source]:
    """Reads every benchmark.

    Args:
      benchmarks: names.
      data: none, or a file for each benchmark that the package does not make itself, in order.
      limit, spread: as in `load_rows`.

    Raises:
      UserError: a benchmark twice, files that do not fit, or as `load_rows`.
    """
    if len(set(benchmarks)) < len(benchmarks):
        raise UserError(f"--benchmark: a benchmark is named twice in {', '.join(benchmarks)}")
    files = list(data) if data else [None] * len(benchmarks)
    if len(files) != len(benchmarks):
        raise UserError(
            f"--data: {len(files)} files for {len(benchmarks)} benchmarks; give one each, in order, or none"
        )
    pairs = zip(benchmarks, files, strict=True)
    return [Source(name, file, load_rows(name, file, limit, spread=spread)) for name, file in pairs]


def measure_grid(
    models: Sequence[str],
    names: Sequence[str],
    sources: Sequence[Source],
    decoded: Decoding,
    out: Path,
    *,
    framing: str,
    rules: Path | None,
    dtype: str,
    rows: int,
    workers: int,
    deadline: float,
    revision: str | None,
    max_position: int | None,
    mesh: str,
    extract: Extract | None,
    require_stop: bool,
) -> list[Cell]:
    """Measures every policy on every benchmark, one policy in memory at a time.

    A single cell lies in `out` itself, otherwise each in `out/POLICY/BENCHMARK`.

    Raises:
      UserError: as `load_policy`, `sample_to_store` and `claim_folder`.
    """
    labels, devices = policy_names(models, names), own_mesh(mesh)
    single = len(models) * len(sources) == 1
    cells = []
    with Pool(workers, deadline) if workers else nullcontext() as pool:
        for model, label in zip(models, labels, strict=True):
            policy = load_policy(
                model, name=label, dtype=dtype, revision=revision, max_position=max_position, mesh=devices,
                rules=SAMPLER_RULES,
            )  # fmt: skip
            for source in sources:
                defaults = task_defaults(policy, source.name, source.rows[0], framing, rules)
                settings = MeasureSettings(
                    **vars(decoded),
                    framing=defaults.framing,
                    require_stop=require_stop or defaults.require_stop,
                    extract=extract or defaults.extract,
                    rows=rows,
                )
                folder = out if single else out / label / source.name
                content = {
                    "model": model, "revision": policy.revision, "dtype": dtype, "max_position": max_position,
                    "benchmark": source.name, "rows": [row.id for row in source.rows], "stop_ids": policy.stop_ids,
                    "settings": vars(settings) | {"rows": None},
                }  # fmt: skip
                claim_folder(folder, content)
                table = _measure(policy, source, settings, folder, defaults, pool.map if pool else None)
                result = summarise(
                    table, source.rows, settings.samples,
                    policy=label, benchmark=source.name, rules=defaults.rules,
                )  # fmt: skip
                cells.append(Cell(label, source.name, folder, table, source.rows, defaults.rules, result))
    return cells


def _measure(
    policy: Policy,
    source: Source,
    settings: MeasureSettings,
    folder: Path,
    defaults: TaskDefaults,
    verify: Callable[..., Any] | None,
) -> pa.Table:
    stops = ", ".join(f"{i} {policy.tokenizer.convert_ids_to_tokens(i)}" for i in policy.stop_ids)
    print(
        f"{policy.name} on {source.name}: {len(source.rows)} prompts x {settings.samples}, framing {settings.framing}, "
        f"stop at {stops}",
        file=sys.stderr,
    )
    with tqdm(total=len(source.rows), unit="prompt", file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.update(done - bar.n)

        return sample_to_store(
            policy, source.rows, settings, folder, rules=defaults.rules, verify=verify, progress=progress
        )
