"""Benchmarks as rows, from local JSONL files or from the Hugging Face hub."""

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np

from vsr_jax.data import converters
from vsr_jax.data.aime import check_year
from vsr_jax.data.records import Record, read_jsonl
from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError


@dataclass(frozen=True)
class Hub:
    """Where a benchmark lies on the hub: its parts (configurations, or files) are read in order and joined."""

    dataset: str
    split: str
    configs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Attributes:
      rows: how many rows the whole has.
      convert: makes a row of a record.
      hub: its public home.
      check: checks all records against each other.
    """

    rows: int
    convert: Callable[[Record], Row]
    hub: Hub
    check: Callable[[Sequence[Record]], None] | None = None


_SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)
_MATHIF_FILES = tuple(
    f"{source}_{count}.jsonl"
    for source in ("aime", "gsm8k", "math500", "minerva", "olympiad")
    for count in ("single", "double", "triple")
)
_MATH500 = Benchmark(500, converters.math500, Hub("HuggingFaceH4/MATH-500", "test"))

BENCHMARKS: dict[str, Benchmark] = {
    "math_train": Benchmark(7500, converters.math_train, Hub("EleutherAI/hendrycks_math", "train", _SUBJECTS)),
    "math500": _MATH500,
    "math500_128": _MATH500,  # load_benchmark keeps the rows of the subset
    "aime24": Benchmark(
        30, partial(converters.aime, "aime24"), Hub("HuggingFaceH4/aime_2024", "train"), partial(check_year, "aime24")
    ),
    "aime25": Benchmark(
        30, partial(converters.aime, "aime25"), Hub("math-ai/aime25", "test"), partial(check_year, "aime25")
    ),
    "gsm8k": Benchmark(1319, converters.gsm8k, Hub("openai/gsm8k", "test", ("main",))),
    "ifeval": Benchmark(541, converters.ifeval, Hub("google/IFEval", "train")),
    "ifbench": Benchmark(300, converters.ifbench, Hub("allenai/IFBench_test", "train")),
    "mathif": Benchmark(420, converters.mathif, Hub("TingchenFu/MathIF", "train", files=_MATHIF_FILES)),
    "reasonif": Benchmark(300, converters.reasonif, Hub("ykwon-hf/reasonIF", "train")),
    "iftrain": Benchmark(95373, converters.iftrain, Hub("allenai/IF_multi_constraints_upto5", "train")),
}


def load_benchmark(
    name: str, path: str | Path | None = None, *, limit: int | None = None, seed: int | None = None
) -> list[Row]:
    """The rows of a benchmark, with ids that are stable across loads.

    Args:
      name: one of `BENCHMARKS`. `math500_128` reads the file of `math500`.
      path: a JSONL file with the fields of the public data set; None reads the hub through `datasets`.
      limit: keep the first `limit` rows (after shuffling, if any).
      seed: shuffle with this seed; None keeps the order of the file.

    Raises:
      UserError: unknown name, unreadable source, a malformed row, more rows than the benchmark has, repeated ids, or
        an AIME year that is not as published. A file with fewer rows than the benchmark loads with a warning.
    """
    if name not in BENCHMARKS:
        raise UserError(f"benchmark {name!r}: unknown; choose one of {', '.join(BENCHMARKS)}")
    if limit is not None and limit < 1:
        raise UserError(f"limit: is {limit}, must be at least 1")
    benchmark = BENCHMARKS[name]
    source = str(path or benchmark.hub.dataset)
    records = read_jsonl(path) if path is not None else _read_hub(name, benchmark.hub)
    if benchmark.check:
        benchmark.check(records)
    if len(records) > benchmark.rows:
        # Such as the 12,000-row train split of MATH in circulation, which holds problems of MATH-500.
        raise UserError(
            f"{source}: has {len(records)} rows, {name} has {benchmark.rows}; a larger one may hold test problems"
        )
    rows = [benchmark.convert(record) for record in records]
    seen: dict[str, str] = {}
    for row, record in zip(rows, records, strict=True):
        if row.id in seen:
            raise UserError(f"{record.where}: id {row.id} is the same as at {seen[row.id]}; ids must differ")
        seen[row.id] = record.where
    if len(rows) < benchmark.rows:
        warnings.warn(f"{source}: has {len(rows)} rows of the {benchmark.rows} of {name}", stacklevel=2)
    if name == "math500_128":
        rows = _subset(source, rows)
    if seed is not None:
        rows = [rows[index] for index in np.random.default_rng(seed).permutation(len(rows))]
    return rows[:limit]


def _subset(source: str, rows: list[Row]) -> list[Row]:
    text = resources.files("vsr_jax.data").joinpath("assets", "math500_128.json").read_text()
    by_id = {row.id: row for row in rows}
    ids = [f"math500/{name}" for name in json.loads(text)["unique_ids"]]
    missing = [row_id for row_id in ids if row_id not in by_id]
    if missing:
        raise UserError(f"{source}: unique_id: {len(missing)} of the 128 rows are missing, such as {missing[0]}")
    return [by_id[row_id] for row_id in ids]


def _read_hub(name: str, hub: Hub) -> list[Record]:
    import datasets  # slow to import, and needed only without a local file

    records: list[Record] = []
    for part in hub.files or hub.configs or (None,):
        try:
            if hub.files:
                loaded = datasets.load_dataset(hub.dataset, data_files=part, split=hub.split)
            else:
                loaded = datasets.load_dataset(hub.dataset, part, split=hub.split)
        except Exception as error:  # the library raises errors of many kinds, all of them "cannot be read"
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise UserError(
                f"benchmark {name}: hub data set {hub.dataset} cannot be read ({reason}); give a local JSONL file"
            ) from None
        for position, fields in enumerate(loaded):
            extra = {"file": part.removesuffix(".jsonl")} if hub.files and part else {}
            where = f"{hub.dataset}{f'/{part}' if part else ''} row {position}"
            records.append(Record({**dict(fields), **extra}, where, len(records)))
    if not records:
        raise UserError(f"benchmark {name}: hub data set {hub.dataset} has no rows")
    return records
