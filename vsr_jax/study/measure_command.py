"""`vsr measure`: one policy on one benchmark, from files or the hub, to tables on disk and on the screen."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vsr_jax import report
from vsr_jax.data.benchmarks import load_benchmark
from vsr_jax.report import Column, Estimate, Table
from vsr_jax.study.measure import Measurement, MeasureSettings, sample_to_store, summarise
from vsr_jax.study.policy import Policy, load_policy
from vsr_jax.study.runs import claim_folder
from vsr_jax.verifiers import Pool


def measure(
    model: str,
    benchmark: str,
    out: Path,
    *,
    data: Path | None,
    limit: int | None,
    framing: str,
    dtype: str,
    workers: int,
    deadline: float,
    revision: str | None,
    max_position: int | None,
    **decoding: Any,
) -> str:
    """Measures and returns what to print. Arguments are those of the command; `decoding` are fields of MeasureSettings.

    Writes `settings.json`, `provenance.json`, `rollouts.parquet`, `support.csv` and `support.md` into `out`.
    """
    rows = load_benchmark(benchmark, data, limit=limit)
    policy = load_policy(model, dtype=dtype, revision=revision, max_position=max_position)
    if framing == "auto":
        framing = _auto_framing(policy, rows[0].task)
    settings = MeasureSettings(framing=framing, **decoding)
    content = {
        "model": model,
        "revision": policy.revision,
        "dtype": dtype,
        "max_position": max_position,
        "benchmark": benchmark,
        "rows": [row.id for row in rows],
        "stop_ids": policy.stop_ids,
        "settings": vars(settings) | {"rows": None},
    }
    claim_folder(out, content)
    stops = ", ".join(f"{i} {policy.tokenizer.convert_ids_to_tokens(i)}" for i in policy.stop_ids)
    print(
        f"{policy.name} on {benchmark}: {len(rows)} prompts x {settings.samples}, framing {framing}, stop at {stops}",
        file=sys.stderr,
    )
    with (
        Pool(workers, deadline) if workers else nullcontext() as pool,
        tqdm(total=len(rows), unit="prompt", file=sys.stderr) as bar,
    ):

        def progress(done: int, total: int) -> None:
            bar.n = done
            bar.refresh()

        table = sample_to_store(policy, rows, settings, out, verify=pool.map if pool else None, progress=progress)
    result = summarise(table, rows, settings.samples, policy=policy.name, benchmark=benchmark)
    tables = measurement_tables(result)
    for name, value in tables.items():
        report.write_table(value, out / name)
    notes = [f"note: {warning}" for warning in result.account.warnings]
    return "\n".join(
        [*(report.to_markdown(value) for value in tables.values()), *notes, f"rollouts: {out / 'rollouts.parquet'}"]
    )


def _auto_framing(policy: Policy, task: str) -> str:
    chat = bool(getattr(policy.tokenizer, "chat_template", None))
    if task == "math":
        return "chat+boxed" if chat else "boxed"
    return "chat" if chat else "raw"


def measurement_tables(result: Measurement) -> Mapping[str, Table]:
    """`support`: mean@n, best@n in its three meanings, what was extracted; `buckets`; `openings`."""
    n = len(result.curve["unbiased"])
    shares = result.buckets.shares
    support = {
        "policy": result.policy,
        "benchmark": result.benchmark,
        "prompts": len(result.buckets.labels),
        "mean": Estimate(*result.interval["mean"]),
        "unbiased": Estimate(*result.interval["best"]),
        "exact": float(result.curve["exact"][-1]),
        "with_replacement": float(result.curve["with_replacement"][-1]),
        "extracted": result.account.extraction_rate,
        "length": result.length,
        "truncated": result.truncated,
    }
    columns = [
        Column("policy", "Policy"),
        Column("benchmark", "Benchmark"),
        Column("prompts", "Prompts", digits=0),
        Column("mean", f"mean@{n}"),
        Column("unbiased", f"best@{n}, unbiased"),
        Column("exact", f"best@{n}, exact"),
        Column("with_replacement", f"best@{n}, with replacement"),
        Column("extracted", "answer found"),
        Column("length", "tokens", digits=1),
        Column("truncated", "cut off"),
    ]
    buckets = [
        {"bucket": name, "prompts": count, "share": shares[name]} for name, count in result.buckets.counts.items()
    ]
    openings = [{"opening": name, "share": share} for name, share in result.openings.items()]
    return {
        "support": Table(columns, [support], "Brackets: 95 % intervals from resampling prompts."),
        "buckets": Table(
            [Column("bucket", "Bucket"), Column("prompts", "Prompts", digits=0), Column("share", "Share")], buckets
        ),
        "openings": Table([Column("opening", "Opening"), Column("share", "Share of responses")], openings),
    }
