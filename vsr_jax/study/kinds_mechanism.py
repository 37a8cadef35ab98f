"""Stages that look at how policies differ: along responses, under forced openings, and by preference."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from vsr_jax.data.rows import Row
from vsr_jax.data.store import read_rollouts
from vsr_jax.mechanism.first_token import first_tokens
from vsr_jax.mechanism.intervene import (
    MICRO_TEXTS,
    RECIPE_TEXTS,
    Forcing,
    free,
    frequent_tokens,
    matched_ids,
    other_first,
    own_second,
    text_forcing,
    text_ids,
)
from vsr_jax.scoring import token_logprobs
from vsr_jax.study.intervene import folder_of, sample_conditions
from vsr_jax.study.kinds import (
    Measured,
    PolicyAt,
    bench_content,
    bench_rows,
    bench_size,
    load,
    measure_settings,
    root_of,
    rules_of,
    slug,
    unique,
    verifier,
)
from vsr_jax.study.localize import localise
from vsr_jax.study.measure import Measurement, summarise
from vsr_jax.study.policy import Policy
from vsr_jax.study.preset import Bench, Preset
from vsr_jax.study.runs import Report, Stage
from vsr_jax.study.work import Work
from vsr_jax.training.checkpoint import write_json


@dataclass(frozen=True)
class Localized:
    """Base and other policies compared along stored responses; `found.json` in the stage's folder holds the numbers."""

    policies: tuple[PolicyAt, ...]
    along: Measured
    stage: Stage

    def found(self, root: Path) -> dict[str, Any]:
        """The fields of `Findings` but for the token table; pairs are named `P|Q`."""
        return json.loads((self.stage.folder(root) / "found.json").read_text())


def localized(preset: Preset, policies: tuple[PolicyAt, ...], along: Measured, seed: int) -> Localized:
    """Teacher-forces all policies along the first samples of the first prompts of a measurement."""

    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        root = root_of(folder)
        table = _first(read_rollouts(along.stage.folder(root)), preset.localize_prompts, preset.localize_samples)
        found = localise(
            [load(preset, policy, root) for policy in policies],
            table,
            along.bench.title,
            preset.positions,
            progress=lambda done, total: report(done, total, "responses"),
        )
        plain = {name: value for name, value in vars(found).items() if name != "tokens"}
        write_json(folder / "found.json", as_json(plain))

    content = {
        "policies": [policy.path for policy in policies],
        "positions": preset.positions,
        "prompts": preset.localize_prompts,
        "samples": preset.localize_samples,
        "dtype": preset.dtype,
    }
    stages = (*(policy.stage for policy in policies), along.stage)
    name = f"localize-{along.bench.benchmark}" + (f".{seed}" if seed else "")
    return Localized(policies, along, Stage(name, content, unique(stages), run, _scoring(preset, policies, along)))


def _scoring(preset: Preset, policies: Sequence[PolicyAt], along: Measured) -> Work:
    decoding = along.bench.decoding
    prompts = min(bench_size(preset, along.bench), preset.localize_prompts)
    responses = prompts * min(decoding.samples, preset.localize_samples)
    return Work(max_tokens=decoding.max_tokens, scored=responses * len(policies), models=len(policies))


def _first(table: pa.Table, prompts: int, samples: int) -> pa.Table:
    kept = set(list(dict.fromkeys(table["prompt_id"].to_pylist()))[:prompts])
    held = [
        name in kept and sample < samples
        for name, sample in zip(table["prompt_id"].to_pylist(), table["sample_id"].to_pylist(), strict=True)
    ]
    return table.filter(pa.array(held))


def as_json(value: Any) -> Any:
    """Dataclasses, arrays and mappings with tuple keys as JSON values; NaN becomes None."""
    if is_dataclass(value) and not isinstance(value, type):
        return as_json(vars(value))
    if isinstance(value, dict):
        return {"|".join(key) if isinstance(key, tuple) else str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return as_json(value.tolist())
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, np.generic):
        return as_json(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value


@dataclass(frozen=True)
class Forced:
    """A policy under forced openings; a folder of responses a condition."""

    policy: PolicyAt
    other: PolicyAt
    bench: Bench
    stage: Stage

    def conditions(self, root: Path) -> dict[str, int]:
        """Position of the forced text of each condition, by name: `free` first, then by position."""
        held = json.loads((self.stage.folder(root) / "conditions.json").read_text())
        return dict(sorted(held.items(), key=lambda item: (item[1], item[0] != "free", item[0])))

    def table(self, root: Path, condition: str) -> pa.Table:
        """The responses of a condition."""
        return read_rollouts(folder_of(self.stage.folder(root), condition))

    def result(self, preset: Preset, root: Path, condition: str) -> Measurement:
        """A condition summed up."""
        rows = bench_rows(preset, self.bench)[: preset.intervene_prompts]
        return summarise(
            self.table(root, condition),
            rows,
            self.bench.decoding.samples,
            policy=condition,
            benchmark=self.bench.title,
            rules=rules_of(preset),
        )


def forced(
    preset: Preset, policy: PolicyAt, other: PolicyAt, bench: Bench, seed: int, *, sweep: Sequence[int] = ()
) -> Forced:
    """Decodes `policy` with and without forced openings, all conditions in one queue.

    Conditions: free; the first token that `other` likes best; the policy's own second choice; the DRI and DAI
    prefixes; a neutral prefix of the DRI prefix's length; a random frequent token; and the other's token at every
    position of `sweep`.
    """
    settings = measure_settings(preset, bench, seed)
    texts = MICRO_TEXTS if preset.world else RECIPE_TEXTS

    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        root = root_of(folder)
        rows = bench_rows(preset, bench)[: preset.intervene_prompts]
        decoded, source = load(preset, policy, root), load(preset, other, root)
        forcings = _forcings(decoded, source, rows, settings.framing, seed, sweep, texts)
        with verifier(preset) as verify:
            sample_conditions(
                decoded,
                rows,
                forcings,
                settings,
                folder,
                rules=rules_of(preset),
                verify=verify,
                progress=lambda done, total: report(done, total, "responses"),
            )
        if jax.process_index() == 0:
            write_json(folder / "conditions.json", {forcing.name: forcing.position for forcing in forcings})

    content = {
        **bench_content(preset, policy, bench, settings),
        "other": other.path,
        "sweep": list(sweep),
        "texts": vars(texts),
        "prompts": preset.intervene_prompts,
    }
    name = f"force-{slug(policy.name, seed)}-{bench.benchmark}"
    inputs = unique((policy.stage, other.stage))
    count = min(bench_size(preset, bench), preset.intervene_prompts or bench_size(preset, bench))
    conditions = 7 + sum(position > 1 for position in sweep)  # of `_forcings`
    count *= conditions
    work = Work(count, count * settings.samples, settings.max_tokens, models=1)
    return Forced(policy, other, bench, Stage(name, content, inputs, run, work, together=True))


def _forcings(
    policy: Policy, other: Policy, rows: Sequence[Row], framing: str, seed: int, sweep: Sequence[int], texts: Any
) -> list[Forcing]:
    count, tokenizer = len(rows), policy.tokenizer
    prompts = [policy.encode(row, framing) for row in rows]
    own, theirs = (first_tokens(p.config, p.params, prompts, k=2) for p in (policy, other))
    dri = text_ids(tokenizer, texts.dri)
    first = other_first(theirs)
    return [
        free(count),
        first,
        own_second(own),
        text_forcing("DRI prefix", *dri, count),
        text_forcing("DAI prefix", *text_ids(tokenizer, texts.dai), count),
        text_forcing("neutral prefix, as long", *matched_ids(tokenizer, texts.neutral, len(dri[0])), count),
        frequent_tokens(tokenizer, prompts, [row.id for row in rows], seed, policy.stop_ids),
        *(other_first(theirs, position) for position in sweep if position > 1),
    ]


@dataclass(frozen=True)
class Shift:
    """Mean log-probability of each response under several policies; `logp.npz` holds an array a policy."""

    policies: tuple[PolicyAt, ...]
    along: Measured
    stage: Stage

    def change(self, root: Path, policy: PolicyAt) -> np.ndarray:
        """float64[responses]: against the first policy, in nats a token."""
        held = np.load(self.stage.folder(root) / "logp.npz")
        return held[policy.name] - held[self.policies[0].name]


def shift(preset: Preset, policies: tuple[PolicyAt, ...], along: Measured, seed: int, rows: int = 32) -> Shift:
    """Scores stored responses by all policies, length-normalised."""

    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        root = root_of(folder)
        table = _first(read_rollouts(along.stage.folder(root)), preset.localize_prompts, preset.localize_samples)
        prompts, responses = table["prompt_tokens"].to_pylist(), table["tokens"].to_pylist()
        found = {}
        for number, policy in enumerate(policies):
            report(number, len(policies), policy.name)
            found[policy.name] = _mean_logp(load(preset, policy, root), prompts, responses, rows)
        np.savez(folder / "logp.npz", **found)
        report(len(policies), len(policies), "")

    content = {
        "policies": [policy.path for policy in policies],
        "prompts": preset.localize_prompts,
        "samples": preset.localize_samples,
        "dtype": preset.dtype,
    }
    stages = unique((*(policy.stage for policy in policies), along.stage))
    name = f"shift-{slug(policies[-1].name, seed)}-{along.bench.benchmark}"
    return Shift(policies, along, Stage(name, content, stages, run, _scoring(preset, policies, along)))


def _mean_logp(
    policy: Policy, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], rows: int
) -> np.ndarray:
    width = max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True))
    out = np.zeros(len(prompts))
    for begin in range(0, len(prompts), rows):
        part = range(begin, min(begin + rows, len(prompts)))
        tokens, length = np.zeros((rows, width), np.int32), np.ones(rows, np.int32)
        for row, i in enumerate(part):
            both = [*prompts[i], *responses[i]]
            tokens[row, : len(both)], length[row] = both, len(both)
        scored = np.asarray(token_logprobs(policy.config, policy.params, tokens, length))
        for row, i in enumerate(part):
            first = len(prompts[i]) - 1
            out[i] = scored[row, first : first + len(responses[i])].mean()
    return out
