"""`vsr study`: options of the whole study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Study:
    """Run the study: eight experiments, one report. Goes on where it was interrupted.

    micro: on the tiny Base that ships with the package, in minutes on a laptop.
    qwen3-8b, qwen2.5-math-7b: the paper's models, with its settings and stand-ins for what it leaves open.
    small: a model of 0.5 to 1.7 billion parameters on one accelerator, with shorter lists.

    Every stage is stored under what it depends on: a changed setting runs again what depends on it, and nothing else.
    Several runners may share one folder; each takes stages that nobody has.
    """

    name: tyro.conf.Positional[Literal["micro", "qwen3-8b", "qwen2.5-math-7b", "small"]]
    """Which study."""
    out: Path | None = None
    """Run folder, runs/NAME when left out; the page is OUT/report/index.html."""
    only: tuple[str, ...] = ()
    """Experiments by number, and patterns of stage names such as 'measure-*'; each brings what it depends on."""
    seeds: int = 1
    """Training seeds: 0, 1, ..."""
    quick: bool = False
    """micro: shorter runs and lists; leaves out what the page says."""
    full: bool = False
    """micro: longer runs."""
    base: str = ""
    """micro: model directory of the Base policy; empty takes the one that ships with the package."""
    world: str = "default"
    """micro: preset of the micro world: default, no_mix, rambling or harder."""
    model: str = ""
    """Not micro: hub id or directory of the Base policy, in place of the study's own."""
    data: Path | None = None
    """Not micro: folder of JSONL files (docs/study.md names them); what it lacks is read from the hub."""
    mesh: str | None = None
    """Not micro: mesh over all devices to train on, as in fsdp=4,tensor=2; by default fsdp over all, small: one device.
    Each process samples and measures on its own devices."""
    dry_run: bool = False
    """Print the data and the stages with inputs and estimated device-hours, and stop."""
    chip: Literal["v4", "v5e", "v5p", "v6e", "h100"] = "v5p"
    """Device of the estimate."""
    mean_tokens: int = 1024
    """Mean response length that the estimate assumes; no response is longer than its limit."""
    status: bool = False
    """Print which stages are done, running or missing, and stop."""

    def run(self) -> None:
        """Runs the stages that are not done and prints the claims."""
        import jax

        from vsr_jax.errors import UserError
        from vsr_jax.parallel.distributed import start
        from vsr_jax.study.study_run import run_study, status_lines

        if self.quick and self.full:
            raise UserError("--quick and --full exclude each other; leave one out")
        if self.seeds < 1:
            raise UserError(f"--seeds {self.seeds}: at least one is needed")
        preset, out, seeds = self._preset(), self.out or Path("runs") / self.name, range(self.seeds)
        if self.dry_run:
            from vsr_jax.study.cost import Assumptions
            from vsr_jax.study.dry_run import dry_run

            if self.mean_tokens < 1:
                raise UserError(f"--mean-tokens {self.mean_tokens}: at least one is needed")
            given = Assumptions(response=self.mean_tokens)
            print(dry_run(preset, seeds, out, self.only, chip=self.chip, given=given))
            return
        if self.status:
            print("\n".join(status_lines(preset, seeds, out, self.only)))
            return
        start()
        page = run_study(preset, seeds, out, self.only)
        if jax.process_index() > 0:
            return
        print((page.parent / "claims.md").read_text())
        print(f"report: {page}")

    def _preset(self):
        from vsr_jax.errors import UserError
        from vsr_jax.study.micro import micro_preset
        from vsr_jax.study.presets_real import real_preset

        for_micro = {
            "--quick": self.quick,
            "--full": self.full,
            "--base": self.base,
            "--world": self.world != "default",
        }
        for_real = {"--model": self.model, "--data": self.data, "--mesh": self.mesh}
        for option, given in (for_real if self.name == "micro" else for_micro).items():
            if given:
                raise UserError(f"{option}: study {self.name} has no such option; leave it out")
        if self.name != "micro":
            return real_preset(self.name, model=self.model, data=self.data, mesh=self.mesh)
        size = "quick" if self.quick else "full" if self.full else "standard"
        return micro_preset(size, base=self.base, world=self.world)
