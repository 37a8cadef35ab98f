"""The kinds of stages that a study is put together from: a policy made or taken, and what is found out about it.

Each function returns what an experiment can name later: where a policy lies, or where a measurement lies. Nothing is
read or computed before the stage runs.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
from jax.sharding import Mesh

from vsr_jax.data import micro
from vsr_jax.data.benchmarks import BENCHMARKS, load_benchmark
from vsr_jax.data.rows import Row
from vsr_jax.data.store import read_rollouts
from vsr_jax.data.strata import stratified
from vsr_jax.errors import UserError
from vsr_jax.model.config import parse_config, read_config
from vsr_jax.model.params import Params
from vsr_jax.model.resolve import resolve_model
from vsr_jax.parallel.mesh import make_mesh, parse_mesh
from vsr_jax.parallel.rollout import rollout_meshes
from vsr_jax.parallel.rules import RULES, SAMPLER_RULES
from vsr_jax.study.measure import Measurement, MeasureSettings, sample_to_store, summarise
from vsr_jax.study.policy import Policy, load_policy, save_policy
from vsr_jax.study.preset import Bench, Preset, Prior, Source
from vsr_jax.study.runs import Report, Stage
from vsr_jax.study.work import Work
from vsr_jax.support import DEFAULT_RULES, MICRO_RULES, OpeningRules
from vsr_jax.training.checkpoint import write_json
from vsr_jax.training.on_policy import train_opd, train_rlvr
from vsr_jax.training.settings import OpdSettings, RlvrSettings
from vsr_jax.training.sft import train_sft
from vsr_jax.training.step import Model
from vsr_jax.verifiers import Pool

_MICRO_ROWS: Mapping[str, Callable[..., list[Row]]] = {
    "micro_math": micro.math_rows,
    "micro_instructions": micro.instruction_rows,
    "micro_joint": micro.joint_rows,
}


@dataclass(frozen=True)
class PolicyAt:
    """A policy that a stage makes.

    Attributes:
      name: for tables and figures; stage: that makes it; path: of the model below the stage's folder.
    """

    name: str
    stage: Stage
    path: str = "model"

    def source(self, root: Path) -> tuple[str, str | None]:
        """Model directory, or hub id with its revision."""
        folder = self.stage.folder(root)
        taken = folder / "model.json"
        if taken.exists():
            held = json.loads(taken.read_text())
            return held["model"], held["revision"]
        return str(folder / self.path), None


@dataclass(frozen=True)
class Measured:
    """A policy's responses to a benchmark, as a stage stores them."""

    policy: PolicyAt
    bench: Bench
    stage: Stage

    def table(self, root: Path) -> pa.Table:
        """All responses."""
        return read_rollouts(self.stage.folder(root))

    def result(self, preset: Preset, root: Path) -> Measurement:
        """Summed up."""
        rows = bench_rows(preset, self.bench)
        return summarise(
            self.table(root),
            rows,
            self.bench.decoding.samples,
            policy=self.policy.name,
            benchmark=self.bench.title,
            rules=rules_of(preset),
        )


def rules_of(preset: Preset) -> OpeningRules:
    """Opening rules of the preset's language."""
    return MICRO_RULES if preset.world else DEFAULT_RULES


def bench_rows(preset: Preset, bench: Bench) -> list[Row]:
    """Evaluation prompts. They do not depend on a seed, so that every seed is measured on the same ones."""
    if preset.world:
        make = _MICRO_ROWS[bench.benchmark]
        split: Any = bench.split
        # Rows of another seed than any training run's, where they are of the training split.
        seed = 0 if split == "evaluation" else 2**20
        return make(micro.PRESETS[preset.world], seed, bench.limit or 64, split=split)
    file = _file(preset, bench.benchmark)
    if bench.spread and bench.limit:
        return stratified(load_benchmark(bench.benchmark, file), bench.limit)
    return load_benchmark(bench.benchmark, file, limit=bench.limit)


def bench_size(preset: Preset, bench: Bench) -> int:
    """How many prompts `bench_rows` has of a whole benchmark, without reading it."""
    if preset.world:
        return bench.limit or 64
    whole = 128 if bench.benchmark == "math500_128" else BENCHMARKS[bench.benchmark].rows
    return min(whole, bench.limit or whole)


def train_rows(preset: Preset, source: Source, seed: int) -> list[Row]:
    """Training prompts, a function of the seed."""
    if preset.world:
        make = _MICRO_ROWS[source.benchmark]
        return make(micro.PRESETS[preset.world], seed, source.limit or 2048, split="train")
    return load_benchmark(source.benchmark, _file(preset, source.benchmark), limit=source.limit, seed=seed)


def _file(preset: Preset, benchmark: str) -> Path | None:
    return preset.files[benchmark].path if benchmark in preset.files else None


def _data(preset: Preset, benchmark: str) -> dict[str, str]:
    """What identifies the prompts besides their settings: the micro world, or the file's content."""
    if preset.world:
        return {"world": preset.world}
    return {"data": preset.files[benchmark].digest if benchmark in preset.files else "hub"}


def mesh_for(preset: Preset) -> Mesh | None:
    """The preset's mesh over all devices; None where that is one device."""
    mesh = make_mesh(parse_mesh(preset.mesh)) if preset.mesh else None
    return mesh if mesh is not None and mesh.size > 1 else None


def load(
    preset: Preset, policy: PolicyAt, root: Path, *, training: bool = False, param_dtype: str | None = None
) -> Policy:
    """The policy's parameters, with the preset's dtype and context, on this process's devices.

    Args:
      training: lay them out as a training loop has them, over the devices of all processes.
      param_dtype: of the parameters where it is not the preset's: a policy that is trained further needs float32, or
        it would lose small updates.
    """
    path, revision = policy.source(root)
    mesh = mesh_for(preset)
    if mesh is not None and not training:
        file = Path(resolve_model(path, revision=revision).directory) / "config.json"
        mesh = rollout_meshes(parse_config(read_config(file), where=str(file)), mesh)[1]
    return load_policy(
        path,
        name=policy.name,
        dtype=preset.dtype,
        param_dtype=param_dtype,
        revision=revision,
        max_position=preset.max_position,
        mesh=mesh,
        rules=RULES if training else SAMPLER_RULES,
    )


@contextmanager
def verifier(preset: Preset) -> Iterator[Any]:
    """Checks in child processes where a verifier may hang; the micro world's cannot."""
    with Pool(preset.workers, preset.deadline_s) if preset.workers else nullcontext() as pool:
        yield pool.map if pool else None


def root_of(folder: Path) -> Path:
    """The run folder of a stage's folder."""
    return folder.parent.parent


def base(preset: Preset) -> PolicyAt:
    """The policy that everything starts from: a model of the hub or a directory, or the shipped micro Base."""
    source = Path(preset.model) if preset.model else micro.BASE
    small = source if not preset.model or preset.world else None

    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        report(0, 1, "")
        if small is not None:
            load_policy(small)  # a directory that does not load is refused here, before anything is trained
            shutil.copytree(small, folder / "model", dirs_exist_ok=True)
        else:
            files = resolve_model(preset.model, revision=preset.revision)
            write_json(folder / "model.json", {"model": preset.model, "revision": files.revision})
        report(1, 1, "")

    content: dict[str, Any] = {"model": preset.model or "shipped", "revision": preset.revision}
    if small is not None:
        weights = small / "model.safetensors"
        content["weights"] = hashlib.sha256(weights.read_bytes()).hexdigest()[:16] if weights.exists() else "missing"
    return PolicyAt("Base", Stage("base", content, (), run))


def snapshot(policy: PolicyAt, step: int, name: str) -> PolicyAt:
    """The same run after `step` steps, one of its snapshots."""
    return PolicyAt(name, policy.stage, f"snapshots/{step}")


def rlvr(
    preset: Preset,
    name: str,
    start: PolicyAt,
    source: Source,
    settings: RlvrSettings,
    snapshots: Sequence[int] = (),
) -> PolicyAt:
    """Trains `start` by RLVR."""

    def train(policy: Policy, rows: list[Row], **common: Any) -> Params:
        return train_rlvr(policy.config, policy.params, rows, settings=settings, **common)

    content = {**asdict(settings), "snapshots": list(snapshots)}
    penalty = settings.kl_coef > 0 or settings.kl_metric
    work = _training_work(settings, passes=penalty + settings.recompute_old, models=int(penalty))
    return _on_policy(preset, name, start, (), source, settings.seed, settings.steps, content, snapshots, train, work)


def _training_work(settings: RlvrSettings | OpdSettings, passes: int, models: int) -> Work:
    """Of one round a step; `passes` are forward passes over each response besides the update's."""
    prompts = settings.steps * settings.prompts
    count = prompts * settings.samples
    return Work(prompts, count, settings.max_tokens, scored=count * passes, trained=count, models=models)


def opd(
    preset: Preset, name: str, student: PolicyAt, teacher: PolicyAt, source: Source, settings: OpdSettings
) -> PolicyAt:
    """Trains `student` to `teacher` by on-policy distillation."""

    def train(policy: Policy, rows: list[Row], *, root: Path, **common: Any) -> Params:
        other = load(preset, teacher, root, training=True)
        return train_opd(
            policy.config, policy.params, Model(other.config, other.params), rows, settings=settings, **common
        )

    content = {**asdict(settings), "teacher": teacher.path}
    work = _training_work(settings, passes=1 + settings.several, models=1)
    return _on_policy(
        preset, name, student, (teacher,), source, settings.seed, settings.steps, content, (), train, work
    )


def _on_policy(
    preset: Preset,
    name: str,
    start: PolicyAt,
    others: tuple[PolicyAt, ...],
    source: Source,
    seed: int,
    steps: int,
    content: Mapping[str, Any],
    snapshots: Sequence[int],
    train: Callable[..., Params],
    work: Work,
) -> PolicyAt:
    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        root = root_of(folder)
        policy = load(preset, start, root, training=True, param_dtype="float32")
        report(0, steps, "compiling")

        def on_step(step: int, line: Mapping[str, float]) -> None:
            report(step, steps, f"reward {line['reward']:.3f}, groups with signal {line['groups_mixed']:.2f}")

        def on_params(step: int, params: Params) -> None:
            if step in snapshots:
                save_policy(replace(policy, params=params), folder / "snapshots" / str(step))

        with verifier(preset) as verify:
            extra = {"root": root} if others else {}
            params = train(
                policy,
                train_rows(preset, source, seed),
                encode=lambda row: policy.encode(row, source.framing),
                tokenizer=policy.tokenizer,
                stop_ids=policy.stop_ids,
                out=folder,
                rules=rules_of(preset),
                mesh=mesh_for(preset),
                take=True,
                verify=verify,
                on_step=on_step,
                on_params=on_params if snapshots else None,
                **extra,
            )
        save_policy(replace(policy, params=params), folder / "model")

    settings = {
        "start": start.path,
        "source": asdict(source),
        "dtype": preset.dtype,
        "max_position": preset.max_position,
        **_data(preset, source.benchmark),
        **content,
    }
    inputs = unique(policy.stage for policy in (start, *others))
    return PolicyAt(name, Stage(slug(name, seed), settings, inputs, run, work, together=True))


def prior(preset: Preset, name: str, start: PolicyAt, texts: Measured, kind: Prior, seed: int) -> PolicyAt:
    """Trains `start` on correct responses of its own that open in one way, the shortest of each prompt.

    A prior without an opening takes a random correct response of each prompt.
    """

    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        policy = load(preset, start, root_of(folder), training=True, param_dtype="float32")
        chosen = prior_texts(read_rollouts(inputs[1]), kind.opening, preset.prior_texts, seed)
        if jax.process_index() == 0:
            write_json(folder / "texts.json", {"responses": len(chosen), "texts": [text for *_, text in chosen]})
            (folder / "metrics.jsonl").unlink(missing_ok=True)

        def stream() -> Iterator[tuple[list[int], list[int]]]:
            epoch = 0
            while True:
                for i in np.random.default_rng([seed, epoch]).permutation(len(chosen)):
                    yield chosen[i][0], chosen[i][1]
                epoch += 1

        def on_step(step: int, line: Mapping[str, float]) -> None:
            report(step, kind.sft.steps, f"loss {line['cross_entropy']:.3f}")

        params = train_sft(
            policy.config,
            policy.params,
            stream(),
            kind.sft,
            metrics_file=folder / "metrics.jsonl",
            on_step=on_step,
            mesh=mesh_for(preset),
            take=True,
        )
        save_policy(replace(policy, params=params), folder / "model")

    settings = {**asdict(kind), "start": start.path, "texts": preset.prior_texts, "seed": seed}
    work = Work(max_tokens=kind.sft.width, trained=kind.sft.steps * kind.sft.rows)
    return PolicyAt(name, Stage(slug(name, seed), settings, (start.stage, texts.stage), run, work, together=True))


def prior_texts(table: pa.Table, opening: str, count: int, seed: int) -> list[tuple[list[int], list[int], str]]:
    """`(prompt ids, response ids, text)` of at most `count` correct responses, one a prompt.

    Raises:
      UserError: no correct response opens that way.
    """
    by_prompt: dict[str, list[dict[str, Any]]] = {}
    columns = ["prompt_id", "prompt_tokens", "tokens", "text", "passed", "opening", "finish_reason"]
    for item in table.select(columns).to_pylist():
        if item["passed"] and item["finish_reason"] == "stop" and opening in ("", item["opening"]):
            by_prompt.setdefault(item["prompt_id"], []).append(item)
    if not by_prompt:
        raise UserError(f"no correct response opens with {opening or 'anything'}; sample more prompts for the prior")
    draws = np.random.default_rng(seed)
    prompts = [list(by_prompt)[i] for i in draws.permutation(len(by_prompt))[:count]]
    chosen = []
    for name in prompts:
        held = by_prompt[name]
        item = (
            held[draws.integers(len(held))] if not opening else min(held, key=lambda r: (len(r["tokens"]), r["text"]))
        )
        chosen.append((item["prompt_tokens"], item["tokens"], item["text"]))
    return chosen


def measure(preset: Preset, policy: PolicyAt, bench: Bench, seed: int) -> Measured:
    """Samples and judges a benchmark."""
    settings = measure_settings(preset, bench, seed)

    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        with verifier(preset) as verify:
            sample_to_store(
                load(preset, policy, root_of(folder)),
                bench_rows(preset, bench),
                settings,
                folder,
                rules=rules_of(preset),
                verify=verify,
                progress=lambda done, total: report(done, total, "prompts"),
            )

    name = f"measure-{slug(policy.name, seed)}-{bench.benchmark}"
    count = bench_size(preset, bench)
    work = Work(count, count * settings.samples, settings.max_tokens, models=1)
    content = bench_content(preset, policy, bench, settings)
    return Measured(policy, bench, Stage(name, content, (policy.stage,), run, work, together=True))


def measure_settings(preset: Preset, bench: Bench, seed: int) -> MeasureSettings:
    """A bench's decoding under a training seed. In the micro world a response must end to pass, as in its training."""
    decoding = replace(bench.decoding, seed=bench.decoding.seed + seed)
    small = bool(preset.world)
    return MeasureSettings(
        **vars(decoding),
        framing=bench.framing,
        require_stop=small,
        extract="boxed" if small else "auto",
        rows=preset.slots,
    )


def bench_content(preset: Preset, policy: PolicyAt, bench: Bench, settings: MeasureSettings) -> dict[str, Any]:
    """What responses to a bench depend on; how many are decoded together does not change them."""
    return {
        **asdict(settings),
        "rows": None,
        "policy": policy.path,
        "benchmark": bench.benchmark,
        "limit": bench.limit,
        "split": bench.split,
        **({"spread": True} if bench.spread else {}),
        "dtype": preset.dtype,
        "max_position": preset.max_position,
        **_data(preset, bench.benchmark),
    }


def unique(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """The stages, those of one key once."""
    return tuple({stage.key(): stage for stage in stages}.values())


def slug(name: str, seed: int) -> str:
    """A folder name; the seed is in it where it is not 0."""
    plain = "".join(c if c.isalnum() else "-" for c in name.lower().replace(" -> ", "-then-"))
    plain = "-".join(part for part in plain.split("-") if part)
    return f"{plain}.{seed}" if seed else plain
