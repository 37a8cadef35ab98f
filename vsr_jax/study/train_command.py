"""`vsr train`: loops over real or micro prompts, with a live line, to a model directory."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from vsr_jax.cli_train import Opd, Prompts, Rlvr, Sft
from vsr_jax.data import micro
from vsr_jax.data.benchmarks import load_benchmark
from vsr_jax.data.records import read_jsonl
from vsr_jax.data.rows import Row
from vsr_jax.data.templates import encode_prompt
from vsr_jax.errors import UserError
from vsr_jax.model.params import Params
from vsr_jax.objectives.user import load_objective
from vsr_jax.parallel.distributed import start
from vsr_jax.parallel.mesh import make_mesh, parse_mesh
from vsr_jax.study.policy import Policy, load_policy, save_policy
from vsr_jax.study.runs import claim_folder
from vsr_jax.support import DEFAULT_RULES, MICRO_RULES
from vsr_jax.training.on_policy import train_opd, train_rlvr
from vsr_jax.training.sft import Text, train_sft
from vsr_jax.training.sinks import open_sinks
from vsr_jax.training.step import Model
from vsr_jax.verifiers import Pool


def train_on_prompts(how: Rlvr | Opd) -> str:
    """RLVR or distillation; returns what to print. The same command on every process of a cluster."""
    start()
    rows, world = training_rows(how.prompts)
    mesh = _mesh(how.mesh)
    policy = load_policy(how.model, dtype=how.dtype, param_dtype="float32", mesh=mesh)
    framing = "micro" if world and how.prompts.framing == "auto" else how.prompts.framing
    framing = framing_for(policy, framing, rows[0])
    _claim(how, {"used_framing": framing, "revision": policy.revision})
    objective = load_objective(how.objective) if isinstance(how, Rlvr) and how.objective else None
    common = {
        "rows": rows,
        "encode": lambda row: policy.encode(row, framing),
        "tokenizer": policy.tokenizer,
        "stop_ids": policy.stop_ids,
        "out": how.out,
        "rules": MICRO_RULES if world else DEFAULT_RULES,
        "mesh": mesh,
        "rollout": parse_mesh(how.rollout_mesh) or None,
        "take": True,
    }
    with (
        Pool(how.prompts.workers, how.prompts.deadline) if how.prompts.workers else nullcontext() as pool,
        _progress(how) as on_step,
    ):
        common |= {"verify": pool.map if pool else None, "on_step": on_step}
        if isinstance(how, Rlvr):
            params = train_rlvr(policy.config, policy.params, settings=how.settings, objective=objective, **common)
        else:
            # Never updated: it needs no float32 copy.
            teacher = load_policy(how.teacher, dtype=how.dtype, mesh=mesh)
            other = Model(teacher.config, teacher.params)
            params = train_opd(policy.config, policy.params, other, settings=how.settings, **common)
    return _finish(policy, params, how.out)


def train_on_texts(how: Sft) -> str:
    """Supervised fine-tuning; returns what to print."""
    start()
    mesh = _mesh(how.mesh)
    texts = [(record.text("prompt"), record.text("response")) for record in read_jsonl(how.data)]
    policy = load_policy(how.model, dtype=how.dtype, param_dtype="float32", mesh=mesh)
    _claim(how, {"revision": policy.revision})
    end = policy.tokenizer.eos_token_id
    if end is None:
        raise UserError(f"{policy.directory}: the tokenizer names no eos_token, which must end every response")
    encoded = [
        (
            encode_prompt(how.framing, prompt, policy.tokenizer),
            [*policy.tokenizer.encode(response, add_special_tokens=False), end],
        )
        for prompt, response in texts
    ]
    with _progress(how) as on_step:
        params = train_sft(
            policy.config,
            policy.params,
            _shuffled(encoded, how.seed),
            how.settings,
            metrics_file=how.out / "metrics.jsonl",
            checkpoints=how.out / "checkpoints",
            take=True,
            mesh=mesh,
            on_step=on_step,
        )
    return _finish(policy, params, how.out)


def _mesh(text: str) -> Mesh | None:
    """The trainer's: as named, else `fsdp` over all devices where there are several processes."""
    return make_mesh(parse_mesh(text or "fsdp=-1")) if text or jax.process_count() > 1 else None


def training_rows(prompts: Prompts) -> tuple[list[Row], bool]:
    """The rows to train on, and whether they are of the micro world."""
    makers = {"micro_math": micro.math_rows, "micro_instructions": micro.instruction_rows}
    if prompts.benchmark in makers:
        return makers[prompts.benchmark](micro.DEFAULT, 0, prompts.limit or 2048, split="train"), True
    return load_benchmark(prompts.benchmark, prompts.data, limit=prompts.limit), False


def framing_for(policy: Policy, framing: str, row: Row) -> str:
    """`auto` is chat+boxed on math and chat on instructions where the tokenizer has a template, else boxed and raw."""
    if framing != "auto":
        return framing
    chat = bool(getattr(policy.tokenizer, "chat_template", None))
    if row.task == "math":
        return "chat+boxed" if chat else "boxed"
    return "chat" if chat else "raw"


def _shuffled(texts: Sequence[Text], seed: int) -> Iterator[Text]:
    epoch = 0
    while True:
        for i in np.random.default_rng([seed, epoch]).permutation(len(texts)):
            yield texts[i]
        epoch += 1


def _as_json(how: Rlvr | Opd | Sft) -> dict[str, object]:
    return json.loads(json.dumps(asdict(how), default=str))


def _claim(how: Rlvr | Opd | Sft, found: Mapping[str, object]) -> None:
    """The folder is this run's; what only says where metrics go too may change."""
    if jax.process_index() == 0:
        claim_folder(how.out, {**_as_json(how), **found} | {"log": []})


@contextmanager
def _progress(how: Rlvr | Opd | Sft) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """The live line, and the sinks that were asked for."""
    with _live_line(how.settings.steps) as show, open_sinks(how.log, how.out, asdict(how.settings)) as log:

        def on_step(done: int, line: Mapping[str, float]) -> None:
            show(done, line)
            log(done, line)

        yield on_step


@contextmanager
def _live_line(steps: int) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """A progress bar over steps, with the numbers that tell whether a run is healthy."""
    shown = {
        "reward": "reward",
        "groups_mixed": "mixed",
        "cross_entropy": "loss",
        "entropy": "entropy",
        "length": "length",
        "tokens_per_s": "tok/s",
    }
    with tqdm(total=steps, unit="step", file=sys.stderr, disable=jax.process_index() > 0) as bar:

        def on_step(done: int, line: Mapping[str, float]) -> None:
            numbers = ", ".join(f"{title} {line[name]:.3f}" for name, title in shown.items() if name in line)
            bar.set_postfix_str(numbers, refresh=False)
            if not bar.n:
                bar.initial = done - 1  # steps of an earlier run are no measure of speed
            bar.n = done
            bar.refresh()

        yield on_step


def _finish(policy: Policy, params: Params, out: Path) -> str:
    save_policy(replace(policy, params=params), out / "model")
    return f"model: {out / 'model'}\nmetrics: {out / 'metrics.jsonl'}"
