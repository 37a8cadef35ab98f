"""The command `vsr`: parses, calls, prints. JAX is imported by the commands that compute, not by `--help`."""

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vsr_jax.cli_mechanism import Intervene, Joint, Localize, Measure, Openings
from vsr_jax.cli_model import Export, Inspect
from vsr_jax.cli_plan import Plan
from vsr_jax.cli_profile import Profile
from vsr_jax.cli_study import Study
from vsr_jax.cli_train import Train
from vsr_jax.compilation import keep_compiled
from vsr_jax.errors import UserError
from vsr_jax.parallel.topology import quiet_compiler


@dataclass(frozen=True)
class MicroWorld:
    """Tools of the micro world.

    pretrain: make a Base policy by supervised training, first a drill on single steps, then the mixed corpus.
    """

    tool: tyro.conf.Positional[Literal["pretrain"]]
    """Which tool."""
    out: Path
    """Model directory to write."""
    world: str = "default"
    """Preset of the micro world."""
    seed: int = 0
    """Of the initial weights and of the corpus."""
    drill_steps: int = 800
    """Optimizer steps of the drill."""
    mixed_steps: int = 1500
    """Optimizer steps on the mixed corpus."""
    drill_rate: float = 3e-3
    """Learning rate of the drill."""
    mixed_rate: float = 2e-3
    """Learning rate on the mixed corpus; decays linearly over the last two thirds."""

    def run(self) -> None:
        """Trains and writes the model directory."""
        from tqdm import tqdm

        from vsr_jax.study.pretrain import PretrainSettings, pretrain

        names = ("world", "seed", "drill_steps", "mixed_steps", "drill_rate", "mixed_rate")
        settings = PretrainSettings(**{name: getattr(self, name) for name in names})
        with tqdm(total=settings.drill_steps + settings.mixed_steps, file=sys.stderr) as bar:

            def on_step(phase: str, step: int, steps: int, line) -> None:
                bar.set_description(phase, refresh=False)
                bar.set_postfix_str(f"loss {line['loss']:.3f}", refresh=False)
                bar.update()

            pretrain(settings, self.out, on_step=on_step)
        print(f"model: {self.out}")


@dataclass(frozen=True)
class Verifiers:
    """Tools of the verifiers.

    selfcheck: our verdicts beside recorded verdicts of reference checkers, as agreement tables.
    """

    tool: tyro.conf.Positional[Literal["selfcheck"]]
    """Which tool."""
    oracle: Path
    """Directory of the recorded verdicts (math_equivalence_dev.jsonl, ifeval_reference_outcomes_dev.jsonl, ...)."""

    def run(self) -> None:
        """Prints the tables."""
        from vsr_jax.study.selfcheck_command import selfcheck

        print(selfcheck(self.oracle))


Command = (
    Annotated[Study, tyro.conf.subcommand("study")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Measure, tyro.conf.subcommand("measure")]
    | Annotated[Localize, tyro.conf.subcommand("localize")]
    | Annotated[Intervene, tyro.conf.subcommand("intervene")]
    | Annotated[Joint, tyro.conf.subcommand("joint")]
    | Annotated[Openings, tyro.conf.subcommand("openings")]
    | Annotated[Plan, tyro.conf.subcommand("plan")]
    | Annotated[Profile, tyro.conf.subcommand("profile")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[MicroWorld, tyro.conf.subcommand("micro")]
    | Annotated[Verifiers, tyro.conf.subcommand("verifiers")]
)


def _show_compilations() -> None:
    """Lines of the sampler's log, one a compiled program, on standard error."""
    logger = logging.getLogger("vsr_jax.sampling")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("vsr: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # libraries give the root a handler of their own, which would say it again


def main() -> None:
    """Entry point. Exits 2 with one line on bad input, 130 on an interrupt; finished work is kept either way."""
    command = tyro.cli(Command, prog="vsr", description="What reinforcement learning does to a policy's support.")
    quiet_compiler()
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that PyTorch is not there is no news here
    try:
        # The planner reads what the compiler writes beside a program, which a kept program does not bring along.
        if not isinstance(command, Plan):
            keep_compiled()
            _show_compilations()
        command.run()
    except UserError as error:
        print(f"vsr: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("\nvsr: interrupted; run the same command again to go on", file=sys.stderr)
        raise SystemExit(130) from None
