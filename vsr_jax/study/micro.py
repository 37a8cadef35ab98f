"""The micro study: from one tiny Base a Math-RLVR and an IF-RLVR branch; the support of all three on both tasks."""

import hashlib
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vsr_jax.data import micro
from vsr_jax.data.overlap import overlap
from vsr_jax.data.rows import Row
from vsr_jax.data.store import read_rollouts
from vsr_jax.model.checkpoint_io import save_model
from vsr_jax.study.measure import Measurement, MeasureSettings, sample_to_store, summarise
from vsr_jax.study.policy import Policy, load_policy
from vsr_jax.study.runs import Report, Stage, run_stages
from vsr_jax.support import MICRO_RULES
from vsr_jax.training.on_policy import train_rlvr
from vsr_jax.training.settings import RlvrSettings

BASE = Path(micro.__file__).parent / "base"
"""The Base policy that ships with the package; `training.json` in it says how it was made."""

TASKS = ("math", "instructions")
POLICIES = ("Base", "Math-RLVR", "IF-RLVR")


@dataclass(frozen=True)
class MicroStudy:
    """Settings of the micro study. Both branches share everything but the task and the number of steps.

    Attributes:
      world: preset of the micro world.
      base: model directory of the Base policy; the one that ships with the package when empty.
      math_steps, if_steps: GRPO steps of the two branches.
      learning_rate: of AdamW, both branches.
      train_rows: training prompts a task.
      prompts: evaluation prompts a task; none of them is in any training text.
      samples: responses a prompt when measuring.
      seed: of training prompts, rollouts and measurements.
    """

    world: str = "default"
    base: str = ""
    math_steps: int = 40
    if_steps: int = 60
    learning_rate: float = 3e-4
    train_rows: int = 2048
    prompts: int = 64
    samples: int = 32
    seed: int = 0


def task_rows(study: MicroStudy, task: str, split: str) -> list[Row]:
    """Rows of a task; evaluation rows do not depend on the seed, so that every seed is measured on the same prompts."""
    make = micro.math_rows if task == "math" else micro.instruction_rows
    world = micro.PRESETS[study.world]
    if split == "train":
        return make(world, study.seed, study.train_rows, split="train")
    return make(world, 0, study.prompts, split="evaluation")


def rlvr_settings(study: MicroStudy, task: str) -> RlvrSettings:
    """Training settings of a branch: 16 x 16 rollouts a step, one on-policy update, no KL, answers must end."""
    return RlvrSettings(
        steps=study.math_steps if task == "math" else study.if_steps,
        prompts=16,
        samples=16,
        max_tokens=micro.PRESETS[study.world].max_response,
        learning_rate=study.learning_rate,
        require_stop=True,
        extract="boxed",
        seed=study.seed,
    )


def measure_settings(study: MicroStudy) -> MeasureSettings:
    """Plain sampling from the policy; a response must end to pass."""
    return MeasureSettings(
        samples=study.samples,
        max_tokens=micro.PRESETS[study.world].max_response,
        seed=1234 + study.seed,
        framing="micro",
        require_stop=True,
        extract="boxed",
        rows=1024,
    )


def stages(study: MicroStudy) -> list[Stage]:
    """Base, the two branches, then three policies on two tasks."""
    base = Stage("base", {"base": study.base or "shipped", "weights": _weights_digest(study)}, (), _base_stage(study))
    branches = {
        "Base": base,
        "Math-RLVR": _branch_stage(study, "math", base),
        "IF-RLVR": _branch_stage(study, "instructions", base),
    }
    measured = [_measure_stage(study, name, task, branches[name]) for task in TASKS for name in POLICIES]
    return [*branches.values(), *measured]


def _weights_digest(study: MicroStudy) -> str:
    file = Path(study.base or BASE) / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.exists() else "missing"


def _base_stage(study: MicroStudy) -> Callable[[Path, Sequence[Path], Report], None]:
    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        report(0, 1, "")
        source = Path(study.base or BASE)
        load_policy(source)  # a directory that does not load is refused here, before anything is trained
        shutil.copytree(source, folder / "model", dirs_exist_ok=True)
        report(1, 1, "")

    return run


def _branch_stage(study: MicroStudy, task: str, base: Stage) -> Stage:
    settings = rlvr_settings(study, task)

    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        policy = load_policy(inputs[0] / "model")
        report(0, settings.steps, "compiling")

        def on_step(step: int, line: Mapping[str, float]) -> None:
            note = f"reward {line['reward']:.3f}, groups with signal {line['groups_mixed']:.2f}"
            report(step, settings.steps, note)

        params = train_rlvr(
            policy.config,
            policy.params,
            task_rows(study, task, "train"),
            lambda row: policy.encode(row, "micro"),
            policy.tokenizer,
            policy.stop_ids,
            settings,
            folder,
            rules=MICRO_RULES,
            on_step=on_step,
        )
        save_policy(replace(policy, params=params), folder / "model")

    name = "math-rlvr" if task == "math" else "if-rlvr"
    world = {"world": study.world, "train_rows": study.train_rows}
    return Stage(name, {**world, **asdict(settings)}, (base,), run)


def save_policy(policy: Policy, directory: Path) -> None:
    """Writes a policy as a Hugging Face directory, with the tokenizer of the directory it came from."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (policy.directory / name).exists():
            shutil.copyfile(policy.directory / name, directory / name)
    save_model(policy.config, policy.params, directory)


def _measure_stage(study: MicroStudy, name: str, task: str, branch: Stage) -> Stage:
    settings = measure_settings(study)

    def run(folder: Path, inputs: Sequence[Path], report: Report) -> None:
        policy = load_policy(inputs[0] / "model", name=name)
        rows = task_rows(study, task, "evaluation")
        progress = lambda done, total: report(done, total, "prompts")  # noqa: E731
        sample_to_store(policy, rows, settings, folder, rules=MICRO_RULES, progress=progress)

    content: dict[str, Any] = {"task": task, "world": study.world, "prompts": study.prompts, **asdict(settings)}
    return Stage(f"measure-{name.lower()}-{task}", content, (branch,), run)


def measurements(study: MicroStudy, root: Path) -> dict[str, dict[str, Measurement]]:
    """Results by task and policy, once all stages are done."""
    found: dict[str, dict[str, Measurement]] = {task: {} for task in TASKS}
    for task, name, folder in measured_folders(study, root):
        rows = task_rows(study, task, "evaluation")
        table = read_rollouts(folder)
        found[task][name] = summarise(table, rows, study.samples, policy=name, benchmark=task)
    return found


def measured_folders(study: MicroStudy, root: Path) -> list[tuple[str, str, Path]]:
    """`(task, policy, folder)` of every measurement."""
    folders = [stage.folder(root) for stage in stages(study)[len(POLICIES) :]]
    names = [(task, name) for task in TASKS for name in POLICIES]
    return [(task, name, folder) for (task, name), folder in zip(names, folders, strict=True)]


def run_micro(study: MicroStudy, root: Path) -> Path:
    """Runs the study in `root` and returns the report page; finished stages are not run again."""
    from vsr_jax.study.micro_report import write_report

    for task in TASKS:
        found = overlap(task_rows(study, task, "train"), task_rows(study, task, "evaluation"))
        print(f"{task}, training against evaluation prompts: {found}", file=sys.stderr)
    run_stages(stages(study), root)
    return write_report(study, root)
