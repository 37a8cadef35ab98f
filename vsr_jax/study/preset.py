"""What a study is made of: its model, data, training runs, measurements and sweeps, as plain values.

The experiments read nothing else, so the miniature and the real models run through the same code.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from vsr_jax.errors import UserError
from vsr_jax.mechanism.intervene import SWEEP
from vsr_jax.study.grid import Decoding
from vsr_jax.training.settings import OpdSettings, RlvrSettings, SftSettings


@dataclass(frozen=True)
class DataFile:
    """A JSONL file of a benchmark, identified by its content."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Source:
    """Prompts to train on.

    Attributes:
      benchmark: name of a benchmark, or of a micro task.
      framing: what stands around a prompt.
      limit: first rows of the shuffle under the run's seed; None takes all.
    """

    benchmark: str
    framing: str
    limit: int | None = None


@dataclass(frozen=True)
class Bench:
    """Prompts to measure on.

    Attributes:
      benchmark: name of a benchmark, or of a micro task; title: for tables.
      framing: what stands around a prompt.
      decoding: how responses are drawn.
      limit: first rows only.
      split: of a micro task; `train` prompts serve to collect texts, never to measure.
      spread: the limited rows have the benchmark's make-up (`data.strata`) instead of being its first.
    """

    benchmark: str
    title: str
    framing: str
    decoding: Decoding
    limit: int | None = None
    split: str = "evaluation"
    spread: bool = False


@dataclass(frozen=True)
class Prior:
    """Supervised texts before IF-RLVR.

    Attributes:
      opening: class of the responses that are kept; empty keeps any.
      sft: how they are trained on.
    """

    opening: str
    sft: SftSettings


@dataclass(frozen=True)
class Preset:
    """One study.

    Attributes:
      name, about: for the command line and the page.
      model: hub id or directory; empty takes the micro Base that ships with the package.
      revision: of a hub id.
      dtype: of parameters.
      max_position: context length override; None keeps the model's own.
      mesh: to train on, such as `fsdp=-1`, over all devices; empty runs on one.
      world: preset of the micro world; empty for real models.
      slots: responses that are decoded together.
      workers, deadline_s: child processes that verify, 0 for none, and seconds a response may take there.
      math_train, if_train: prompts of the two kinds of training.
      math, instructions: the two training runs that everything starts from.
      trajectory: steps of the IF run whose policies are measured, besides its last.
      then_math: Math-RLVR from the IF endpoint.
      then_if: IF-RLVR from the Math endpoint; betas: weights of its reference penalty.
      priors: supervised texts before IF-RLVR, by name; prior_texts: responses in each; prior_source: prompts that
        Base answers to get them; after_prior: the IF-RLVR that follows; prior_snapshots: steps measured.
      opd: distillation from the converged IF teacher; scan: from its snapshots at `teacher_steps`.
      if_support, math_support: benchmarks of experiments 1 and 2.
      math_buckets: of experiments 3 and 4 and of distillation; if_small: instruction benchmark beside it.
      localize: benchmarks of experiment 5; localize_prompts, localize_samples: responses of Base that are used;
        positions: name of the position groups.
      intervene: benchmarks of experiment 6; intervene_prompts: first prompts of each; sweep: positions.
      joint: benchmarks of experiment 8; joint_math, joint_if: the endpoints' own runs; None takes the main ones;
        joint_math_train: prompts of the former, where they differ.
      open_choices: what the paper leaves open, and what is chosen here.
      files: of benchmarks; those without one are read from the hub.
      skip: experiments that this preset leaves out, with the reason.
    """

    name: str
    about: str
    math_train: Source
    if_train: Source
    math: RlvrSettings
    instructions: RlvrSettings
    then_math: RlvrSettings
    then_if: RlvrSettings
    betas: tuple[float, ...]
    priors: Mapping[str, Prior]
    after_prior: RlvrSettings
    opd: OpdSettings
    scan: OpdSettings
    teacher_steps: tuple[int, ...]
    if_support: tuple[Bench, ...]
    math_support: tuple[Bench, ...]
    math_buckets: Bench
    if_small: Bench
    prior_source: Bench
    localize: tuple[Bench, ...]
    intervene: tuple[Bench, ...]
    joint: tuple[Bench, ...]
    trajectory: tuple[int, ...] = ()
    prior_snapshots: tuple[int, ...] = ()
    prior_texts: int = 50
    localize_prompts: int = 100
    localize_samples: int = 8
    positions: str = "recipe"
    intervene_prompts: int | None = None
    sweep: tuple[int, ...] = SWEEP
    joint_math: RlvrSettings | None = None
    joint_if: RlvrSettings | None = None
    joint_math_train: Source | None = None
    model: str = ""
    revision: str | None = None
    dtype: str = "float32"
    max_position: int | None = None
    mesh: str = ""
    world: str = ""
    slots: int = 256
    workers: int = 0
    deadline_s: float = 10.0
    open_choices: tuple[str, ...] = ()
    files: Mapping[str, DataFile] = field(default_factory=dict)
    skip: Mapping[int, str] = field(default_factory=dict)


def data_file(path: Path) -> DataFile:
    """A file with its digest. Raises UserError where there is none."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; put the benchmark there, or leave --data out to read the hub")
    with path.open("rb") as stream:
        return DataFile(path, hashlib.file_digest(stream, "sha256").hexdigest()[:16])


def with_seed(settings: RlvrSettings, seed: int) -> RlvrSettings:
    """The same training under another seed of prompt order and sampling."""
    return replace(settings, seed=seed)
