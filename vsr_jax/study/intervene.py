"""Interventions: all conditions x prompts x samples as one queue, judged, stored a folder a condition, compared."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from vsr_jax import support
from vsr_jax.data import store
from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.judging import judge
from vsr_jax.mechanism.intervene import Forcing, forced_matrix, reached
from vsr_jax.parallel.distributed import local_rows
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import Rollouts, SamplerStats, SamplingParams
from vsr_jax.study.measure import Measurement, MeasureSettings, rollout_table, seal_together, summarise
from vsr_jax.study.policy import Policy
from vsr_jax.support.openings import OpeningRules

SAVE_EVERY = 2048
"""Responses that are stored together."""


def chunk_of(max_tokens: int) -> int:
    """Decode steps between refills: short, since conditions that end at once stand beside some that run on."""
    return min(max(max_tokens // 16, 4), 32)


def folder_of(out: Path, name: str) -> Path:
    """Where the responses of a condition lie."""
    return out / (re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "condition")


def sample_conditions(
    policy: Policy,
    rows: Sequence[Row],
    forcings: Sequence[Forcing],
    settings: MeasureSettings,
    out: Path,
    *,
    rules: OpeningRules | None = None,
    verify: Any = None,
    progress: Callable[[int, int], None] | None = None,
    on_stats: Callable[[SamplerStats], None] | None = None,
) -> dict[str, pa.Table]:
    """Samples every condition and returns its sealed table; what `out` already holds is not sampled again.

    The conditions share one queue, one compiled sampler and the same decoding. The free condition draws the samples
    that `vsr measure` draws with the same seed. Of several processes, which all make the same call, each samples its
    share.

    Args:
      policy: that is decoded.
      rows: prompts; forcings: conditions, each with the forced ids of every row.
      settings: decoding, as for a measurement.
      out: a folder a condition is made in it.
      rules, verify: as in `sample_to_store`.
      progress: called with (responses done, in all).
      on_stats: as in `sample`; not called where everything is stored already.

    Raises:
      UserError: no rows, two conditions with one folder, or a prompt or forced position beyond what fits.
    """
    if not rows:
        raise UserError("the benchmark has no rows; nothing to intervene on")
    folders = [folder_of(out, forcing.name) for forcing in forcings]
    if len(set(folders)) < len(folders):
        raise UserError(f"conditions need different names, got {', '.join(f.name for f in forcings)}")
    prompts = [policy.encode(row, settings.framing) for row in rows]
    finished = [store.finished_prompts(folder) for folder in folders]
    every = [(c, r) for c in range(len(forcings)) for r in range(len(rows))]
    mine = [every[i] for i in local_rows(len(every))]
    jobs = [(c, r) for c, r in mine if rows[r].id not in finished[c]]
    n = settings.samples
    single = [replace(forcings[c], ids=(forcings[c].ids[r],)) for c, r in jobs]
    forced = forced_matrix(single, n, settings.max_tokens)
    total = len(mine) * n
    done = total - len(jobs) * n
    waiting: dict[int, list[pa.Table]] = {}

    def store_waiting() -> None:
        for c, tables in waiting.items():
            store.write_part(folders[c], pa.concat_tables(tables))
        waiting.clear()

    def on_prompt(index: int, rollouts: Rollouts) -> None:
        nonlocal done
        c, r = jobs[index]
        arrived = reached(rollouts, forced[index * n : (index + 1) * n])
        judged = judge(
            [rows[r]],
            rollouts,
            policy.tokenizer,
            require_stop=settings.require_stop,
            extract=settings.extract,
            rules=rules,
            verify=verify,
        )
        text = forcings[c].text
        if any(ok and not item.text.startswith(text) for item, ok in zip(judged, arrived, strict=True)):
            raise RuntimeError(f"a response to {rows[r].id} does not begin with the forced text {text!r}")
        waiting.setdefault(c, []).append(rollout_table([rows[r]], rollouts, judged))
        done += n
        if sum(map(len, waiting.values())) * n >= SAVE_EVERY:
            store_waiting()
        if progress is not None:
            progress(done, total)

    if progress is not None:
        progress(done, total)
    if jobs:
        sample(
            policy.config,
            policy.params,
            [prompts[r] for _, r in jobs],
            SamplingParams(
                n, settings.max_tokens, settings.temperature, settings.top_p, settings.top_k, policy.stop_ids
            ),
            settings.seed,
            forced_tokens=forced,
            prompt_ids=[_prompt_id(rows[r], forcings[c]) for c, r in jobs],
            slots=settings.rows,
            chunk=chunk_of(settings.max_tokens),
            on_prompt=on_prompt,
            on_stats=on_stats,
        )
    store_waiting()
    seal_together(folders)
    return {f.name: store.read_rollouts(folder) for f, folder in zip(forcings, folders, strict=True)}


def _prompt_id(row: Row, forcing: Forcing) -> int:
    """Seeds a row's samples: by the row alone where nothing is forced, else by the condition too."""
    return crc32((row.id if forcing.name == "free" else f"{row.id}\n{forcing.name}").encode())


@dataclass(frozen=True)
class Effect:
    """One condition beside the free policy.

    Attributes:
      measured: of the condition.
      mean, best: change of mean@n and of unbiased best@n, paired over prompts.
      chain: share of responses that show steps, whatever their opening.
      reached: share of responses that were still running at the forced position.
      gained, lost: prompts that have a passing sample under the condition alone, and under the free policy alone.
    """

    measured: Measurement
    mean: support.PairedDifference
    best: support.PairedDifference
    chain: float
    reached: float
    gained: tuple[str, ...]
    lost: tuple[str, ...]


def effects(
    tables: Mapping[str, pa.Table],
    rows: Sequence[Row],
    forcings: Sequence[Forcing],
    samples: int,
    *,
    policy: str,
    benchmark: str,
    rules: OpeningRules | None = None,
) -> dict[str, Effect]:
    """Every condition against `free`, which must be among them. Samples without a verdict count as failed here."""
    results = {
        name: summarise(table, rows, samples, policy=f"{policy}, {name}", benchmark=benchmark, rules=rules)
        for name, table in tables.items()
    }
    passes = {name: result.account.passes for name, result in results.items()}
    mean = {name: support.mean_per_prompt(p, missing="wrong") for name, p in passes.items()}
    best = {name: support.best_at_k_per_prompt(p, samples, missing="wrong") for name, p in passes.items()}
    out = {}
    for forcing in forcings:
        name = forcing.name
        table = tables[name]
        moved = support.transition(results["free"].buckets, results[name].buckets)
        last = forcing.position - 1 + max(map(len, forcing.ids))
        lengths = np.array([len(tokens) for tokens in table["tokens"].to_pylist()])
        out[name] = Effect(
            measured=results[name],
            mean=support.paired_bootstrap(mean["free"], mean[name]),
            best=support.paired_bootstrap(best["free"], best[name]),
            chain=float(np.mean([support.has_chain(text, rules=rules) for text in table["text"].to_pylist()])),
            reached=float((lengths >= last).mean()),
            gained=moved.gained,
            lost=moved.lost,
        )
    return out
