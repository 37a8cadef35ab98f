"""`vsr localize`: where two or three policies differ along stored responses."""

import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from vsr_jax import report
from vsr_jax.mechanism.statistics import PairStatistics
from vsr_jax.study.localize import Findings, localise
from vsr_jax.study.localize_report import write_report
from vsr_jax.study.runs import claim_folder
from vsr_jax.study.sources import load_policies, policy_names, stored_responses


def localize(
    models: tuple[str, ...],
    responses: tuple[Path, ...],
    out: Path,
    *,
    names: tuple[str, ...],
    positions: str,
    prompts: int | None,
    samples: int | None,
    dtype: str,
    rows: int,
    revision: str | None,
    max_position: int | None,
    mesh: str,
) -> str:
    """Localises and returns what to print. Arguments are those of the command.

    Writes `tokens-NAME.parquet` (every statistic of every response token), tables, figures and `index.html`.
    """
    along = policy_names([str(folder) for folder in responses], ())
    stored = {
        name: stored_responses(folder, prompts=prompts, samples=samples)
        for name, folder in zip(along, responses, strict=True)
    }
    policies = load_policies(models, names, dtype=dtype, revision=revision, max_position=max_position, mesh=mesh)
    claim_folder(
        out,
        {
            "models": models, "revision": policies[0].revision, "dtype": dtype, "max_position": max_position,
            "responses": [str(folder) for folder in responses], "positions": positions, "prompts": prompts,
            "samples": samples,
        },
    )  # fmt: skip
    found: list[Findings] = []
    for name, table in stored.items():
        with tqdm(total=len(table), unit="response", desc=name, file=sys.stderr) as bar:

            def progress(done: int, total: int, bar: tqdm = bar) -> None:
                bar.update(done - bar.n)

            found.append(localise(policies, table, name, positions, rows=rows, progress=progress))
        _write_tokens(out / f"tokens-{name}.parquet", found[-1], table, [policy.name for policy in policies])
    page, tables = write_report(out, found, stored, policies, positions)
    shown = [report.to_markdown(tables[name]) for name in ("ratio", "first_choice", "first_mass", "high")]
    return "\n".join([*shown, f"report: {page}"])


def _write_tokens(path: Path, found: Findings, table: pa.Table, policies: list[str]) -> None:
    """One row a response token: whose it is, where it stands, and the statistics of every pair."""
    tokens = found.tokens
    columns = {
        "prompt_id": table["prompt_id"].take(pa.array(tokens.response)),
        "sample_id": table["sample_id"].take(pa.array(tokens.response)),
        "position": tokens.position,
        "token": np.concatenate([np.asarray(row, np.int32) for row in table["tokens"].to_pylist()]),
    }
    for (i, j), statistics in tokens.pairs.items():
        for name in (field.name for field in fields(PairStatistics)):
            columns[f"{name}:{policies[i]}|{policies[j]}"] = getattr(statistics, name)
    temporary = path.with_name(f".{path.name}.tmp")
    pq.write_table(pa.table(columns), temporary, compression="zstd")
    temporary.replace(path)
