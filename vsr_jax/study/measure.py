"""Support of one policy on one benchmark: n samples a prompt, judged, stored, summed up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import jax
import numpy as np
import pyarrow as pa

from vsr_jax import support
from vsr_jax.data import store
from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.judging import Judged, judge
from vsr_jax.parallel.distributed import TOGETHER_S, barrier, local_rows
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import Rollouts, SamplingParams
from vsr_jax.study.policy import Policy
from vsr_jax.support.openings import OpeningRules


@dataclass(frozen=True)
class MeasureSettings:
    """How support is measured.

    Attributes:
      samples: responses a prompt (n); best@k is known for k up to it.
      max_tokens: longest response in tokens.
      temperature, top_p, top_k: decoding; top_p 1.0 draws from the policy itself, the paper's evaluations use 0.7.
      seed: of the samples.
      framing: what stands around a prompt, by name, or a Jinja file.
      require_stop: a response cut at the length limit does not pass.
      extract: where a math answer is looked for: auto, boxed or answer_line.
      rows: responses decoded together; lower it when memory is short.
    """

    samples: int = 32
    max_tokens: int = 1024
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 1234
    framing: str = "raw"
    require_stop: bool = False
    extract: Literal["auto", "boxed", "answer_line"] = "auto"
    rows: int = 256


@dataclass(frozen=True)
class Measurement:
    """What one policy reaches on one benchmark.

    Attributes:
      policy, benchmark: names.
      account: pass marks with what is lacking.
      buckets: bucket of each prompt.
      curve: best@k by estimator, each float64[n] for k = 1..n.
      interval: mean@n and unbiased best@n with 95 % intervals from resampling prompts: {name: (value, low, high)}.
      openings: share of each opening class, by task.
      length, truncated: mean tokens, and share cut at the limit.
    """

    policy: str
    benchmark: str
    account: support.Account
    buckets: support.Buckets
    curve: Mapping[str, np.ndarray]
    interval: Mapping[str, tuple[float, float, float]]
    openings: Mapping[str, float]
    length: float
    truncated: float


def sample_to_store(
    policy: Policy,
    rows: Sequence[Row],
    settings: MeasureSettings,
    out: Path,
    *,
    rules: OpeningRules | None = None,
    verify: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> pa.Table:
    """Samples and judges every row, and returns the sealed table of `out/rollouts.parquet`.

    Of several processes, which all make the same call, each samples its share of the rows. Prompts that `out` already
    holds are not sampled again. A row's samples depend on the seed and the row's id only.

    Args:
      progress: called with (prompts done, prompts in all), once at the start too.

    Raises:
      UserError: no rows, or a prompt that does not fit the context; nothing is written for it.
    """
    if not rows:
        raise UserError("the benchmark has no rows; nothing to measure")
    prompts = [policy.encode(row, settings.framing) for row in rows]
    for row, ids in zip(rows, prompts, strict=True):
        if len(ids) + settings.max_tokens > policy.config.max_position:
            raise UserError(
                f"row {row.id}: prompt of {len(ids)} tokens with max_tokens {settings.max_tokens} exceeds the context "
                f"of {policy.config.max_position} (max_position_embeddings of {policy.directory / 'config.json'})"
            )
    done = store.finished_prompts(out)
    mine = local_rows(len(rows))
    todo = [i for i in mine if rows[i].id not in done]
    request = SamplingParams(
        settings.samples, settings.max_tokens, settings.temperature, settings.top_p, settings.top_k, policy.stop_ids
    )
    finished = len(mine) - len(todo)
    if progress is not None:
        progress(finished, len(mine))

    def on_prompt(index: int, rollouts: Rollouts) -> None:
        nonlocal finished
        owner = [rows[todo[index]]]
        judged = judge(
            owner,
            rollouts,
            policy.tokenizer,
            require_stop=settings.require_stop,
            extract=settings.extract,
            rules=rules,
            verify=verify,
        )
        store.write_part(out, rollout_table(owner, rollouts, judged))
        finished += 1
        if progress is not None:
            progress(finished, len(mine))

    sample(
        policy.config,
        policy.params,
        [prompts[i] for i in todo],
        request,
        settings.seed,
        prompt_ids=[crc32(rows[i].id.encode()) for i in todo],
        slots=settings.rows,
        on_prompt=on_prompt,
    )
    seal_together([out])
    return store.read_rollouts(out)


def seal_together(folders: Sequence[Path]) -> None:
    """Seals folders when every process has written its parts; returns when that is done."""
    barrier(f"{folders[0]}: sampled", timeout_s=TOGETHER_S)
    if jax.process_index() == 0:
        for folder in folders:
            store.seal(folder)
    barrier(f"{folders[0]}: sealed", timeout_s=TOGETHER_S)


def rollout_table(rows: Sequence[Row], rollouts: Rollouts, judged: Sequence[Judged]) -> pa.Table:
    """Responses and what was found in them as a table of the rollout store; `rows` are the prompts of `rollouts`."""
    spans = [slice(0, n) for n in rollouts.length]
    cut = lambda values: [row[span] for row, span in zip(values, spans, strict=True)]  # noqa: E731
    verdicts = [item.verdict for item in judged]
    known = [verdict.status not in ("timeout", "error") for verdict in verdicts]
    owners = rollouts.prompt_index
    return store.make_table(
        {
            "prompt_id": [rows[i].id for i in owners],
            "sample_id": rollouts.sample_id.tolist(),
            "prompt_tokens": [rollouts.prompt_tokens[i, : rollouts.prompt_length[i]] for i in owners],
            "tokens": cut(rollouts.tokens),
            "text": [item.text for item in judged],
            "logp": cut(rollouts.logp),
            "logp_behavior": cut(rollouts.logp_behavior),
            "sampled": cut(rollouts.sampled),
            "finish_reason": [item.finish for item in judged],
            "passed": [v.passed if ok else None for v, ok in zip(verdicts, known, strict=True)],
            "parts": [list(v.parts) for v in verdicts],
            "fraction": [v.fraction if ok else None for v, ok in zip(verdicts, known, strict=True)],
            "status": [v.status for v in verdicts],
            "detail": [v.detail for v in verdicts],
            "opening": [item.opening for item in judged],
        }
    )


def summarise(
    table: pa.Table,
    rows: Sequence[Row],
    samples: int,
    *,
    policy: str,
    benchmark: str,
    rules: OpeningRules | None = None,
) -> Measurement:
    """Sums a table of rollouts up. Samples without a verdict are left out of means and never counted as wrong.

    Args:
      table: of the rollout store.
      rows: the prompts asked.
      samples: asked for a prompt.
      policy, benchmark: names.
      rules: that the openings were classified with.
    """
    by_prompt: dict[str, list[str]] = {row.id: [] for row in rows}
    for prompt, status in zip(table["prompt_id"].to_pylist(), table["status"].to_pylist(), strict=True):
        if prompt in by_prompt:
            by_prompt[prompt].append(status)
    names = [row.id for row in rows]
    account = support.account(by_prompt, names, samples)
    passes = account.passes
    missing = "omit" if np.isnan(passes).any() else "error"
    means = support.mean_per_prompt(passes, missing=missing)
    curve = {
        estimator: support.best_at_k_curve(passes, None, estimator, missing=missing)
        for estimator in ("unbiased", "exact", "with_replacement")
    }
    best = support.best_at_k_per_prompt(passes, samples, "unbiased", missing=missing)
    interval = {}
    for name, values in (("mean", means), ("best", best)):
        low, high = support.bootstrap_interval(values)
        interval[name] = (float(values.mean()), float(low), float(high))
    return Measurement(
        policy=policy,
        benchmark=benchmark,
        account=account,
        buckets=support.pass_buckets(passes, names=names),
        curve=curve,
        interval=interval,
        openings=support.opening_shares(table["opening"].to_pylist(), rules=rules),
        length=float(np.mean([len(t) for t in table["tokens"].to_pylist()])),
        truncated=float(np.mean([reason == "length" for reason in table["finish_reason"].to_pylist()])),
    )
