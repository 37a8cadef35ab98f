"""The on-policy loop: sample groups, judge them, update; resumable at every checkpoint, on one process or several.

RLVR weighs each response against its group's rewards; on-policy distillation samples the same way and learns from a
teacher's logits instead.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.objectives.advantages import ADVANTAGES, group_advantages, signal_shares
from vsr_jax.objectives.distill import Measure, distill_sampled, distill_top_k, top_k
from vsr_jax.objectives.kl import full_jsd, full_kl, kl, kl_estimate
from vsr_jax.objectives.policy import cispo, entropy_bonus, grpo, gspo, reinforce, truncated_importance
from vsr_jax.objectives.reducers import constant_length, sequence_mean, token_mean
from vsr_jax.objectives.rewards import overlong_penalty
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.parallel.distributed import agree, barrier
from vsr_jax.parallel.mesh import make_mesh
from vsr_jax.sampling.schedule import bucket
from vsr_jax.sampling.types import Rollouts
from vsr_jax.scoring import target_logprob
from vsr_jax.support.openings import OpeningRules
from vsr_jax.training.batches import GroupedBatch, grouped_batch
from vsr_jax.training.checkpoint import Checkpoints, check_same_settings, rewind_metrics
from vsr_jax.training.place import Place, place_on
from vsr_jax.training.preemption import stop_on_sigterm
from vsr_jax.training.rounds import Round, Source, draw, round_metrics, take_groups
from vsr_jax.training.settings import OpdSettings, RlvrSettings
from vsr_jax.training.step import Model, Others, adamw, make_update, statistics_by_parts

MAY_CHANGE = ("steps", "checkpoint_every", "keep", "keep_every", "patience", "micro_prompts")
"""Settings that a run may go on with although they differ: no result of a step depends on them."""

BARRIER_S = 1800.0
"""How long processes wait for each other at the end of a step."""


def default_objective(settings: RlvrSettings) -> Objective:
    """What the settings name: GRPO with token mean by default, plus the penalty and bonus whose weight is not zero."""
    temperature = settings.temperature
    reducer = {
        "token_mean": token_mean,
        "sequence_mean": sequence_mean,
        "constant_length": constant_length(settings.max_tokens),
    }[settings.reducer]
    common = {"temperature": temperature, "reducer": reducer}
    objective = {
        "grpo": lambda: grpo(clip_low=settings.clip_low, clip_high=settings.clip_high, **common),
        "gspo": lambda: gspo(**common),
        "cispo": lambda: cispo(**common),
        "reinforce": lambda: reinforce(**common),
    }[settings.loss]()
    if settings.importance != "none":
        objective = truncated_importance(objective, behavior=settings.importance, cap=settings.importance_cap)
    if settings.kl_coef:
        objective = objective + settings.kl_coef * kl(settings.kl_estimator, **common)
    if settings.entropy_coef:
        objective = objective + settings.entropy_coef * entropy_bonus(**common)
    return objective


def advantages_of(drawn: Round, settings: RlvrSettings) -> np.ndarray:
    """float32[P, G] from the rewards of everything drawn, less the overlong penalty."""
    rewards = drawn.rewards
    if settings.overlong_buffer:
        penalty = overlong_penalty(drawn.rollouts.length, longest=settings.max_tokens, buffer=settings.overlong_buffer)
        rewards = rewards + penalty.reshape(rewards.shape)
    if settings.advantage == "grpo":
        return group_advantages(rewards, std=settings.std)
    return ADVANTAGES[settings.advantage](rewards)


def learning_rate(settings: RlvrSettings) -> optax.Schedule | float:
    """The rate by update: linear warm-up, then constant or a cosine to zero at the last update."""
    rate, warmup = settings.learning_rate, settings.warmup
    rest: optax.Schedule = optax.constant_schedule(rate)
    if settings.schedule == "cosine":
        rest = optax.cosine_decay_schedule(rate, max(settings.steps * settings.updates - warmup, 1))
    if not warmup:
        return rest if settings.schedule == "cosine" else rate
    return optax.join_schedules([optax.linear_schedule(rate / warmup, rate, warmup), rest], [warmup])


@partial(jax.jit, static_argnames=("config", "statistic", "size"))
def _measured(
    config: ModelConfig, params: Params, batch: GroupedBatch, statistic: Callable[..., Any], size: int
) -> Any:
    return statistics_by_parts(config, params, batch, statistic, size=size)


@jax.jit
def _kl_sum(batch: GroupedBatch) -> tuple[jax.Array, jax.Array]:
    """Sum of k3 over the tokens of a batch, and their number."""
    counted = jnp.asarray(batch.tokens.weight) != 0
    value = kl_estimate(jnp.asarray(batch.tokens.logp_old), jnp.asarray(batch.tokens.logp_ref), "k3")
    return jnp.where(counted, value, 0.0).sum(), counted.sum()


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
    store: Measure | None = None,
    rules: OpeningRules | None = None,
    verify: Any = None,
    mesh: Mesh | None = None,
    rollout: Mapping[str, int] | None = None,
    take: bool = False,
    record: Mapping[str, Any] | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
    on_params: Callable[[int, Params], None] | None = None,
) -> Params:
    """Trains and returns the parameters after the last step.

    Writes `out/metrics.jsonl` (a line a step) and `out/checkpoints`. A run that was interrupted goes on from its last
    checkpoint, with the same prompts and samples as one that never stopped. SIGTERM ends it after the step at hand,
    which is saved, and the process exits with 0. On several processes all make the same call; each samples and judges
    its share of the prompts, and the first one writes.

    Args:
      config, params: the starting policy, which is also the reference of the KL penalty.
      rows: training prompts.
      encode: token ids of a row's framed prompt.
      tokenizer, stop_ids: for text and for the end of a response.
      objective: what to minimise; `default_objective(settings)` when None.
      others: further models whose logits the objective reads.
      keep_silent: whether groups whose advantages are all zero stay in the loss. By default they do where there is a
        KL penalty, which must hold where no reward pulls.
      store: statistic of the policy that sampled, for `TokenBatch.extra`, where a loss of several updates needs more
        of it than `logp_old` (`distill.top_k`).
      rules: opening rules for the metrics.
      verify: see `judge`.
      mesh: over all devices; where there are several processes and None is given, `fsdp` over all of them.
      rollout: sizes of the mesh that a process samples on, of its own devices; see `rollout_sizes` for the default.
      take: `params` may be used up, which saves their memory, but for the reference of a KL in float32.
      record: the run's settings as checkpoints hold them, where they are not `settings`.
      on_step: called with (steps done, metrics) after each step.
      on_params: called with (steps done, parameters) after each step, before its checkpoint, so that what it writes
        is complete wherever a run goes on. The next step takes the parameters' memory: copy what is kept.

    Raises:
      UserError: no rows; settings that contradict each other, or those of the run that `out` holds; or `patience`
        updates had a non-finite gradient, and the batch is in `out/bad_batch.npz`.
    """
    if not rows:
        raise UserError("training needs at least one prompt; the list of rows is empty")
    settings.check()
    if settings.prompts < jax.process_count():
        raise UserError(f"prompts is {settings.prompts}; {jax.process_count()} processes need one each at least")
    if mesh is None and jax.process_count() > 1:
        mesh = make_mesh({"fsdp": -1})
    place = place_on(config, mesh, rollout)
    ids = hashlib.sha256(json.dumps([row.id for row in rows]).encode()).hexdigest()[:16]
    held = {**(record or dataclasses.asdict(settings)), "training rows": ids}
    agree("the settings of the run", held)
    source = Source(rows, encode, tokenizer, stop_ids, rules, verify)
    optimizer = adamw(learning_rate(settings), weight_decay=settings.weight_decay, clip=settings.clip_norm)
    micro = place.micro(min(settings.micro_prompts, settings.prompts // settings.updates))
    made = make_update(config, objective or default_objective(settings), optimizer, micro=micro)
    wants_reference = bool(settings.kl_coef) or settings.kl_metric
    # A reference in the dtype of the parameters is the parameters.
    take = take and not (wants_reference and params["embed"].dtype == config.dtype)
    like = place.like(params, optimizer)
    update = place.update(made, like)
    others = {name: Model(m.config, place.model(m.config, m.params)) for name, m in (others or {}).items()} or None
    metrics_file, writes = out / "metrics.jsonl", jax.process_index() == 0
    keeping = {"keep": settings.keep, "keep_every": settings.keep_every or None}
    with Checkpoints(out / "checkpoints", **keeping) as checkpoints, stop_on_sigterm() as stopping:
        reference = _reference(config, place.model(config, params)) if wants_reference else None
        if restored := checkpoints.restore_latest(like):
            first, state, extra = restored
            free = MAY_CHANGE if settings.schedule == "constant" else MAY_CHANGE[1:]  # a cosine ends at `steps`
            check_same_settings(out, extra, held, free)
            cursor = extra["cursor"]
        else:
            first, cursor = 0, 0
            state = place.start(params, optimizer, like, take=take)
        if take:
            _release(params, state, reference)
        if writes:
            rewind_metrics(metrics_file, first)
        for step in range(first, settings.steps):
            began = time.monotonic()
            drawn, chosen, cursor = draw(
                config, place.sampler(state.params), source, settings, cursor, settings.seed * 1_000_003 + step
            )
            verified = time.monotonic()
            batches = _batches(drawn, chosen, settings, keep_silent, micro)
            with place.context():
                scorer = _Scorer(config, settings, state.params, reference, store, place, micro)
                placed, kl_sums = zip(*[scorer(batch, whole) for batch, whole in batches], strict=True)
                jax.block_until_ready(placed)
                scored = time.monotonic()
                lines = []
                for ready, (batch, _) in zip(placed, batches, strict=True):
                    state, metrics = update(state, ready, others)
                    lines.append({name: float(value) for name, value in jax.device_get(metrics).items()})
                    if int(state.skipped) >= settings.patience:
                        kept = out / "bad_batch.npz"
                        if writes:
                            _save_batch(kept, batch)
                        raise UserError(
                            f"{settings.patience} updates had a non-finite gradient; the last batch is in {kept}; "
                            "lower the learning rate or clip_norm"
                        )
            if reference is not None:
                total, count = np.array(jax.device_get(kl_sums), np.float64).sum(0)
                lines[0]["kl_reference"] = float(total / max(count, 1))
            ended = time.monotonic()
            tokens = int(drawn.rollouts.length.sum())
            line = {
                "step": step,
                **round_metrics(drawn),
                **signal_shares(drawn.rewards),
                **_joined(lines),
                "skipped": int(state.skipped),
                "prompts_drawn": len(drawn.rewards),
                "cursor": cursor,
                "seconds_sample": drawn.seconds_sample,
                "seconds_verify": drawn.seconds_verify,
                "seconds_score": scored - verified,
                "seconds_update": ended - scored,
                "tokens_per_s": tokens / (ended - began),
                "tokens_per_s_sample": tokens / max(drawn.seconds_sample, 1e-9),
                "tokens_per_s_update": sum(part["tokens"] for part in lines) / (ended - scored),
            }
            if writes:
                with metrics_file.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            if on_params is not None:
                on_params(step + 1, state.params)
            stop = stopping(step)
            if (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps or stop:
                checkpoints.save(step + 1, state, {"cursor": cursor, "settings": held})
            if on_step is not None:
                on_step(step + 1, line)
            barrier(f"{out}: step {step}", timeout_s=BARRIER_S)
            if stop and step + 1 < settings.steps:
                checkpoints.wait()
                raise SystemExit(0)
    return state.params


@dataclasses.dataclass(frozen=True)
class _Scorer:
    """What the losses of a step know of the policy before its first update, and of the starting policy."""

    config: ModelConfig
    settings: RlvrSettings
    params: Params
    reference: Params | None
    store: Measure | None
    place: Place
    micro: int

    def __call__(
        self, batch: GroupedBatch, whole: GroupedBatch | None
    ) -> tuple[GroupedBatch, tuple[jax.Array, jax.Array] | None]:
        """The batch, placed, with its log-probabilities; and the sum of the KL to the reference with its tokens."""
        ready = self._old(batch)
        if self.store is not None:
            extra = self._measure(self.params, ready, self.store)
            ready = _with(ready, extra={**ready.tokens.extra, **extra})
        if self.reference is None:
            return ready, None
        seen = ready if whole is None else self._old(whole)
        seen = _with(seen, logp_ref=self._measure(self.reference, seen, _LogpAt(self.settings.temperature)))
        return ready if whole is not None else seen, _kl_sum(seen)

    def _old(self, batch: GroupedBatch) -> GroupedBatch:
        batch = self.place.batch(batch)
        if not self.settings.recompute_old:
            return batch
        return _with(batch, logp_old=self._measure(self.params, batch, _LogpAt(self.settings.temperature)))

    def _measure(self, params: Params, batch: GroupedBatch, statistic: Callable[..., Any]) -> Any:
        return _measured(self.config, params, batch, statistic, self.micro)


@dataclasses.dataclass(frozen=True)
class _LogpAt:
    """The target's log-probability at a temperature; equal ones compare equal, so that each is compiled once."""

    temperature: float

    def __call__(self, logits: jax.Array, tokens: TokenBatch) -> jax.Array:
        return target_logprob(logits, tokens.target, self.temperature)


def _with(batch: GroupedBatch, **fields: Any) -> GroupedBatch:
    return dataclasses.replace(batch, tokens=dataclasses.replace(batch.tokens, **fields))


def _batches(
    drawn: Round, chosen: np.ndarray, settings: RlvrSettings, keep_silent: bool | None, micro: int
) -> list[tuple[GroupedBatch, GroupedBatch | None]]:
    """The updates of a step, of one shape: each batch, and with silent groups too where a metric needs them."""
    advantages = advantages_of(drawn, settings)
    weights = np.isfinite(drawn.rewards).astype(np.float32)
    drop = not (settings.kl_coef if keep_silent is None else keep_silent)
    widths = bucket(drawn.rollouts.prompt_tokens.shape[1]), bucket(drawn.rollouts.tokens.shape[1])

    def make(index: np.ndarray, drop_silent: bool) -> GroupedBatch:
        rollouts: Rollouts = take_groups(drawn.rollouts, index)
        return grouped_batch(
            rollouts,
            advantages[index],
            weights=weights[index],
            behavior="raw" if settings.temperature == 1 else "warped",
            drop_silent=drop_silent,
            widths=widths,
            micro=micro,
        )

    parts = np.split(chosen, settings.updates)
    apart = settings.kl_metric and drop
    return [(make(index, drop), make(index, False) if apart else None) for index in parts]


def _joined(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of a step's updates: means, but the sum of tokens and the largest of maxima."""
    names = {name: None for line in lines for name in line}
    values = {name: [line[name] for line in lines if name in line] for name in names}
    how = lambda name: sum if name == "tokens" else max if name.endswith("_max") else lambda x: sum(x) / len(x)  # noqa: E731
    return {name: float(how(name)(x)) for name, x in values.items()}


@partial(jax.jit, static_argnames=("config",))
def _reference(config: ModelConfig, params: Params) -> Params:
    """The starting policy in the compute dtype, which every pass would cast it to anyway."""
    return jax.tree.map(lambda x: x.astype(config.dtype), params)


def _release(params: Params, *used: Any) -> None:
    """Gives back the memory of starting parameters that nothing took over."""
    taken = {id(x) for x in jax.tree.leaves(used)}
    for x in jax.tree.leaves(params):
        if isinstance(x, jax.Array) and id(x) not in taken and not x.is_deleted():
            x.delete()


def opd_objective(settings: OpdSettings) -> Objective:
    """The distillation loss that the settings name; it reads the logits of the model `teacher`."""
    return {
        "top_k": lambda: distill_top_k(settings.top_k, stored=settings.several),
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
    # `loss` is another choice in each.
    sampling = RlvrSettings(**{name: getattr(settings, name) for name in shared - {"loss"}})
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
        record=dataclasses.asdict(settings),
        # Further updates compare with the tokens that were likeliest when the responses were drawn.
        store=top_k(settings.top_k) if settings.loss == "top_k" and settings.several else None,
        **kwargs,
    )


def _save_batch(path: Path, batch: GroupedBatch) -> None:
    fields = [f.name for f in dataclasses.fields(batch.tokens) if f.name not in ("extra", "others")]
    tokens = {**{name: getattr(batch.tokens, name) for name in fields}, **batch.tokens.extra}
    np.savez_compressed(
        path, prompt_tokens=batch.prompt_tokens, prompt_length=batch.prompt_length, **jax.device_get(tokens)
    )
