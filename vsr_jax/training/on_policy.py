"""The on-policy loop: sample groups, judge them, update; resumable at every checkpoint.

RLVR weighs each response against its group's rewards; on-policy distillation samples the same way and learns from a
teacher's logits instead.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.judging import Judged, judge
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.objectives.advantages import group_advantages, signal_shares
from vsr_jax.objectives.distill import distill_sampled, distill_top_k
from vsr_jax.objectives.kl import full_jsd, full_kl, kl
from vsr_jax.objectives.policy import grpo
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import LENGTH, Rollouts, SamplingParams
from vsr_jax.scoring import chunked, target_logprob
from vsr_jax.support.openings import OpeningRules
from vsr_jax.training.batches import GroupedBatch, grouped_batch
from vsr_jax.training.checkpoint import Checkpoints, rewind_metrics
from vsr_jax.training.preemption import stop_on_sigterm
from vsr_jax.training.settings import OpdSettings, RlvrSettings
from vsr_jax.training.step import Model, Others, adamw, batch_hidden, init_state, make_update


def default_objective(settings: RlvrSettings) -> Objective:
    """Clipped GRPO with token mean, plus the reference penalty when its weight is not zero."""
    objective = grpo(clip_low=settings.clip_low, clip_high=settings.clip_high, temperature=settings.temperature)
    if settings.kl_coef:
        objective = objective + settings.kl_coef * kl(settings.kl_estimator, temperature=settings.temperature)
    return objective


def prompt_indices(count: int, settings: RlvrSettings, step: int) -> np.ndarray:
    """Rows of step `step`: consecutive pieces of one shuffle after another, a function of (seed, step) alone."""
    flat = np.arange(step * settings.prompts, (step + 1) * settings.prompts)
    shuffles = {e: np.random.default_rng([settings.seed, e]).permutation(count) for e in set((flat // count).tolist())}
    return np.array([shuffles[i // count][i % count] for i in flat.tolist()])


def rewards_of(judged: Sequence[Judged], kind: str, groups: int) -> np.ndarray:
    """float64[groups, samples]; NaN where there is no verdict."""

    def one(item: Judged) -> float:
        if item.verdict.status in ("timeout", "error"):
            return float("nan")
        return item.verdict.fraction if kind == "fraction" else float(item.verdict.passed)

    return np.array([one(item) for item in judged]).reshape(groups, -1)


@partial(jax.jit, static_argnames=("config",))
def _reference_logp(config: ModelConfig, params: Params, batch: GroupedBatch, temperature: float) -> jax.Array:
    def statistic(logits: jax.Array, tokens: TokenBatch) -> jax.Array:
        return target_logprob(logits, tokens.target, temperature)

    return chunked(config, params, batch_hidden(config, params, batch, remat=False), batch.tokens, statistic)


def train_rlvr(
    config: ModelConfig,
    params: Params,
    rows: Sequence[Row],
    encode: Callable[[Row], list[int]],
    tokenizer: Any,
    stop_ids: tuple[int, ...],
    settings: RlvrSettings,
    out: Path,
    *,
    objective: Objective | None = None,
    others: Others | None = None,
    keep_silent: bool | None = None,
    rules: OpeningRules | None = None,
    verify: Any = None,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
    on_params: Callable[[int, Params], None] | None = None,
) -> Params:
    """Trains and returns the parameters after the last step.

    Writes `out/metrics.jsonl` (a line a step) and `out/checkpoints`. A run that was interrupted goes on from its last
    checkpoint, with the same prompts and samples as one that never stopped. SIGTERM ends it after the step at hand,
    which is saved, and the process exits with 0.

    Args:
      config, params: the starting policy, which is also the reference of the KL penalty.
      rows: training prompts.
      encode: token ids of a row's framed prompt.
      tokenizer, stop_ids: for text and for the end of a response.
      objective: what to minimise; `default_objective(settings)` when None.
      others: further models whose logits the objective reads.
      keep_silent: whether groups whose rewards are all equal stay in the loss. By default they do where there is a KL
        penalty, which must hold where no reward pulls.
      rules: opening rules for the metrics.
      verify: see `judge`.
      on_step: called with (steps done, metrics) after each step.
      on_params: called with (steps done, parameters) after each step, before its checkpoint, so that what it writes
        is complete wherever a run goes on. The next step takes the parameters' memory: copy what is kept.

    Raises:
      UserError: no rows, or `patience` updates had a non-finite gradient; the batch is saved to `out/bad_batch.npz`.
    """
    if not rows:
        raise UserError("training needs at least one prompt; the list of rows is empty")
    warm = optax.linear_schedule(
        settings.learning_rate / max(settings.warmup, 1), settings.learning_rate, settings.warmup
    )
    rate = warm if settings.warmup else settings.learning_rate
    optimizer = adamw(rate, weight_decay=settings.weight_decay, clip=settings.clip_norm)
    update = make_update(config, objective or default_objective(settings), optimizer, micro=settings.micro_prompts)
    state = init_state(params, optimizer)
    first, metrics_file, prompts = 0, out / "metrics.jsonl", {}
    with Checkpoints(out / "checkpoints") as checkpoints, stop_on_sigterm() as stopping:
        if restored := checkpoints.restore_latest(state):
            first, state, _ = restored
        rewind_metrics(metrics_file, first)
        for step in range(first, settings.steps):
            began = time.monotonic()
            index = prompt_indices(len(rows), settings, step)
            chosen = [rows[i] for i in index]
            for i in index.tolist():
                if i not in prompts:
                    prompts[i] = encode(rows[i])
            request = SamplingParams(
                settings.samples, settings.max_tokens, settings.temperature, settings.top_p, 0, stop_ids
            )
            rollouts = sample(
                config,
                state.params,
                [prompts[i] for i in index.tolist()],
                request,
                seed=settings.seed * 1_000_003 + step,
                # A prompt may come twice in one step when there are few; its position keeps the groups apart.
                prompt_ids=range(step * settings.prompts, (step + 1) * settings.prompts),
            )
            sampled = time.monotonic()
            judged = judge(
                chosen,
                rollouts,
                tokenizer,
                require_stop=settings.require_stop,
                extract=settings.extract,
                rules=rules,
                verify=verify,
            )
            rewards = rewards_of(judged, settings.reward, len(chosen))
            verified = time.monotonic()
            batch = grouped_batch(
                rollouts,
                group_advantages(rewards, std=settings.std),
                weights=np.isfinite(rewards).astype(np.float32),
                behavior="raw" if settings.temperature == 1 else "warped",
                drop_silent=not (settings.kl_coef if keep_silent is None else keep_silent),
                micro=settings.micro_prompts,
            )
            if settings.kl_coef:
                reference = _reference_logp(config, params, batch, settings.temperature)
                batch = dataclasses.replace(batch, tokens=dataclasses.replace(batch.tokens, logp_ref=reference))
            state, metrics = update(state, batch, others)
            numbers = {name: float(value) for name, value in jax.device_get(metrics).items()}
            if int(state.skipped) >= settings.patience:
                kept = out / "bad_batch.npz"
                _save_batch(kept, batch)
                raise UserError(
                    f"{settings.patience} updates had a non-finite gradient; the last batch is in {kept}; "
                    "lower the learning rate or clip_norm"
                )
            line = {
                "step": step,
                "reward": float(np.nanmean(rewards)) if np.isfinite(rewards).any() else float("nan"),
                **signal_shares(rewards),
                **_rollout_metrics(rollouts, judged),
                **numbers,
                "skipped": int(state.skipped),
                "seconds_sample": sampled - began,
                "seconds_verify": verified - sampled,
                "seconds_update": time.monotonic() - verified,
            }
            with metrics_file.open("a") as file:
                file.write(json.dumps(line) + "\n")
            if on_params is not None:
                on_params(step + 1, state.params)
            stop = stopping(step)
            if (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps or stop:
                checkpoints.save(step + 1, state)
            if on_step is not None:
                on_step(step + 1, line)
            if stop and step + 1 < settings.steps:
                checkpoints.wait()
                raise SystemExit(0)
    return state.params


def opd_objective(settings: OpdSettings) -> Objective:
    """The distillation loss that the settings name; it reads the logits of the model `teacher`."""
    return {
        "top_k": lambda: distill_top_k(settings.top_k),
        "sampled": distill_sampled,
        "reverse": lambda: full_kl("policy||other", other="teacher"),
        "forward": lambda: full_kl("other||policy", other="teacher"),
        "jsd": lambda: full_jsd(other="teacher"),
    }[settings.loss]()


def train_opd(
    config: ModelConfig,
    params: Params,
    teacher: Model,
    rows: Sequence[Row],
    encode: Callable[[Row], list[int]],
    tokenizer: Any,
    stop_ids: tuple[int, ...],
    settings: OpdSettings,
    out: Path,
    **kwargs: Any,
) -> Params:
    """On-policy distillation: the student samples, and learns from the teacher's logits on its own responses.

    The arguments are those of `train_rlvr`. Verdicts are taken for the metrics only.

    Raises:
      UserError: the teacher's vocabulary is not the student's; and as `train_rlvr`.
    """
    if (teacher.config.vocab_size, teacher.config.num_tokens) != (config.vocab_size, config.num_tokens):
        raise UserError(
            f"the teacher has {teacher.config.num_tokens} tokens in {teacher.config.vocab_size} rows, the student "
            f"{config.num_tokens} in {config.vocab_size}; distillation needs one vocabulary"
        )
    shared = {f.name for f in dataclasses.fields(RlvrSettings)} & {f.name for f in dataclasses.fields(OpdSettings)}
    sampling = RlvrSettings(**{name: getattr(settings, name) for name in shared})
    return train_rlvr(
        config,
        params,
        rows,
        encode,
        tokenizer,
        stop_ids,
        sampling,
        out,
        objective=opd_objective(settings),
        others={"teacher": teacher},
        keep_silent=True,
        **kwargs,
    )


def _rollout_metrics(rollouts: Rollouts, judged: Sequence[Judged]) -> dict[str, float]:
    openings = [item.opening for item in judged]
    return {
        "length": float(rollouts.length.mean()),
        "truncated": float((rollouts.finish_reason == LENGTH).mean()),
        "no_verdict": float(np.mean([item.verdict.status in ("timeout", "error") for item in judged])),
        **{f"opening_{name}": openings.count(name) / len(openings) for name in sorted(set(openings))},
    }


def _save_batch(path: Path, batch: GroupedBatch) -> None:
    fields = [f.name for f in dataclasses.fields(batch.tokens) if f.name not in ("extra", "others")]
    tokens = {**{name: getattr(batch.tokens, name) for name in fields}, **batch.tokens.extra}
    np.savez_compressed(
        path, prompt_tokens=batch.prompt_tokens, prompt_length=batch.prompt_length, **jax.device_get(tokens)
    )
