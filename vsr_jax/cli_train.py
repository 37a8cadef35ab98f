"""The command `vsr train`. Without JAX, like `cli.py`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vsr_jax.training.settings import OpdSettings, RlvrSettings, SftSettings


@dataclass(frozen=True)
class Prompts:
    """Where training prompts come from."""

    benchmark: str
    """math_train, iftrain, gsm8k, ... as in `vsr measure`; micro_math or micro_instructions for the micro world."""
    data: Path | None = None
    """JSONL file with the fields of the public data set; the hub is asked when it is not given."""
    limit: int | None = None
    """Train on the first LIMIT prompts only."""
    framing: str = "auto"
    """What stands around a prompt, by name, or a Jinja file; auto as in `vsr measure`."""
    workers: int = 0
    """Processes that verify; 0 verifies in this process, without a deadline."""
    deadline: float = 10.0
    """Seconds a worker may spend on one response."""


@dataclass(frozen=True)
class Rlvr:
    """GRPO on verified rewards: sample groups, verify, update. Goes on from its last checkpoint."""

    model: str
    """Starting policy: model directory or hub id."""
    out: Path
    """Run folder: metrics.jsonl, checkpoints and, at the end, model."""
    prompts: tyro.conf.OmitArgPrefixes[Prompts]
    settings: tyro.conf.OmitArgPrefixes[RlvrSettings] = field(default_factory=RlvrSettings)
    objective: str = ""
    """A loss of your own in place of GRPO: path/to/file.py:name."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype; master weights are float32."""
    mesh: str = ""
    """Mesh over the devices of all processes, as in fsdp=8; by default one device, or fsdp over several processes."""
    rollout_mesh: str = ""
    """With a mesh: that of a process's own devices to sample on, as in data=2,tensor=4; by default what memory asks."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Further places for metrics; both need: pip install 'vsr-jax[logging]'."""


@dataclass(frozen=True)
class Opd:
    """On-policy distillation: the student samples and learns from the teacher's logits. Goes on from its checkpoint."""

    model: str
    """Student: model directory or hub id."""
    teacher: str
    """Teacher with the same vocabulary: model directory or hub id."""
    out: Path
    """Run folder: metrics.jsonl, checkpoints and, at the end, model."""
    prompts: tyro.conf.OmitArgPrefixes[Prompts]
    settings: tyro.conf.OmitArgPrefixes[OpdSettings] = field(default_factory=OpdSettings)
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype; master weights are float32."""
    mesh: str = ""
    """Mesh over the devices of all processes, as in fsdp=8; by default one device, or fsdp over several processes."""
    rollout_mesh: str = ""
    """With a mesh: that of a process's own devices to sample on, as in data=2,tensor=4; by default what memory asks."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Further places for metrics; both need: pip install 'vsr-jax[logging]'."""


@dataclass(frozen=True)
class Sft:
    """Supervised fine-tuning on prompts with responses, packed, the loss on responses. Goes on from its checkpoint."""

    model: str
    """Starting policy: model directory or hub id."""
    data: Path
    """JSONL file with the string fields prompt and response."""
    out: Path
    """Run folder: metrics.jsonl, checkpoints and, at the end, model."""
    settings: tyro.conf.OmitArgPrefixes[SftSettings] = field(default_factory=SftSettings)
    framing: str = "raw"
    """What stands around a prompt, by name, or a Jinja file."""
    seed: int = 0
    """Of the order of texts, a new one each pass."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype; master weights are float32."""
    mesh: str = ""
    """Mesh over the devices of all processes, as in fsdp=8; by default one device, or fsdp over several processes."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Further places for metrics; both need: pip install 'vsr-jax[logging]'."""


@dataclass(frozen=True)
class Train:
    """Train a policy: rlvr, opd or sft."""

    how: tyro.conf.OmitSubcommandPrefixes[
        Annotated[Rlvr, tyro.conf.subcommand("rlvr")]
        | Annotated[Opd, tyro.conf.subcommand("opd")]
        | Annotated[Sft, tyro.conf.subcommand("sft")]
    ]

    def run(self) -> None:
        """Trains and prints where the model lies."""
        from vsr_jax.study.train_command import train_on_prompts, train_on_texts

        how = self.how
        print(train_on_texts(how) if isinstance(how, Sft) else train_on_prompts(how))
