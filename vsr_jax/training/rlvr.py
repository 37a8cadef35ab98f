"""The RLVR loop: sample groups, verify, weigh against the group, update; resumable at every checkpoint."""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import optax

from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.judging import Judged, judge
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.objectives.advantages import group_advantages, signal_shares
from vsr_jax.objectives.kl import Estimator, kl
from vsr_jax.objectives.policy import grpo
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import LENGTH, Rollouts, SamplingParams
from vsr_jax.scoring import chunked, target_logprob
from vsr_jax.support.openings import OpeningRules
from vsr_jax.training.batches import GroupedBatch, grouped_batch
from vsr_jax.training.checkpoint import restore_latest, rewind_metrics, save
from vsr_jax.training.step import adamw, batch_hidden, init_state, make_update


@dataclass(frozen=True)
class RlvrSettings:
    """Hyper-parameters of an RLVR run.

    Attributes:
      steps: optimizer steps, one on-policy update each.
      prompts: prompts a step.
      samples: responses a prompt (the group).
      max_tokens: longest response in tokens.
      temperature, top_p: of the rollouts. The loss scores the raw policy at this temperature.
      reward: `all` pays 1 when every constraint holds; `fraction` pays the share that holds.
      require_stop: a response cut at the length limit earns 0.
      extract: where a math answer is looked for: auto, boxed or answer_line.
      std: advantage divided by the group's population or sample deviation, or none.
      clip_low, clip_high: how far the probability ratio may fall or rise.
      kl_coef: weight of the penalty to the starting policy; 0 leaves it out.
      kl_estimator: k1, k2 or k3, in the loss.
      learning_rate: of AdamW.
      warmup: steps of linear warm-up.
      weight_decay, clip_norm: of AdamW, and of the global gradient norm.
      micro_prompts: prompts differentiated at a time; changes memory, not results.
      checkpoint_every: steps between checkpoints.
      patience: updates skipped for a non-finite gradient, in all, that stop the run.
      seed: of prompt order and sampling.
    """

    steps: int = 40
    prompts: int = 16
    samples: int = 16
    max_tokens: int = 48
    temperature: float = 1.0
    top_p: float = 1.0
    reward: Literal["all", "fraction"] = "all"
    require_stop: bool = False
    extract: Literal["auto", "boxed", "answer_line"] = "auto"
    std: Literal["population", "sample", "none"] = "population"
    clip_low: float = 0.2
    clip_high: float = 0.28
    kl_coef: float = 0.0
    kl_estimator: Estimator = "k2"
    learning_rate: float = 1e-6
    warmup: int = 0
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    micro_prompts: int = 4
    checkpoint_every: int = 10
    patience: int = 3
    seed: int = 0


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
    rules: OpeningRules | None = None,
    verify: Any = None,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
) -> Params:
    """Trains and returns the parameters after the last step.

    Writes `out/metrics.jsonl` (a line a step) and `out/checkpoints`. A run that was interrupted goes on from its last
    checkpoint, with the same prompts and samples as one that never stopped.

    Args:
      config, params: the starting policy, which is also the reference of the KL penalty.
      rows: training prompts.
      encode: token ids of a row's framed prompt.
      tokenizer, stop_ids: for text and for the end of a response.
      objective: what to minimise; `default_objective(settings)` when None.
      rules: opening rules for the metrics.
      verify: see `judge`.
      on_step: called with (steps done, metrics) after each step.

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
    first, metrics_file, checkpoints = 0, out / "metrics.jsonl", out / "checkpoints"
    if restored := restore_latest(checkpoints, state):
        first, state = restored
    rewind_metrics(metrics_file, first)
    prompts = {}
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
            micro=settings.micro_prompts,
        )
        if settings.kl_coef:
            reference = _reference_logp(config, params, batch, settings.temperature)
            batch = dataclasses.replace(batch, tokens=dataclasses.replace(batch.tokens, logp_ref=reference))
        state, metrics = update(state, batch)
        numbers = {name: float(value) for name, value in jax.device_get(metrics).items()}
        if int(state.skipped) >= settings.patience:
            _save_batch(out / "bad_batch.npz", batch)
            raise UserError(
                f"{settings.patience} updates had a non-finite gradient; the last batch is in {out / 'bad_batch.npz'}; "
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
        if (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps:
            save(checkpoints, step + 1, state)
        if on_step is not None:
            on_step(step + 1, line)
    return state.params


def _rollout_metrics(rollouts: Rollouts, judged: Sequence[Judged]) -> dict[str, float]:
    openings = [item.opening for item in judged]
    return {
        "length": float(rollouts.length.mean()),
        "truncated": float((rollouts.finish_reason == LENGTH).mean()),
        "no_verdict": float(np.mean([item.verdict.status in ("timeout", "error") for item in judged])),
        **{f"opening_{name}": openings.count(name) / len(openings) for name in sorted(set(openings))},
    }


def _save_batch(path: Path, batch: GroupedBatch) -> None:
    tokens = {f.name: getattr(batch.tokens, f.name) for f in dataclasses.fields(batch.tokens) if f.name != "extra"}
    np.savez_compressed(
        path, prompt_tokens=batch.prompt_tokens, prompt_length=batch.prompt_length, **jax.device_get(tokens)
    )
