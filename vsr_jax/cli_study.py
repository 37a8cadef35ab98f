"""`vsr study`: options of the whole study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Study:
    """Run the study: eight experiments, one report. Goes on where it was interrupted.

    micro: on the tiny Base that ships with the package, in minutes on a laptop.

    Every stage is stored under what it depends on: a changed setting runs again what depends on it, and nothing else.
    Several runners may share one folder; each takes stages that nobody has.
    """

    name: tyro.conf.Positional[Literal["micro"]]
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
    status: bool = False
    """Print which stages are done, running or missing, and stop."""

    def run(self) -> None:
        """Runs the stages that are not done and prints the claims."""
        from vsr_jax.errors import UserError
        from vsr_jax.study.study_run import run_study, status_lines

        if self.quick and self.full:
            raise UserError("--quick and --full exclude each other; leave one out")
        if self.seeds < 1:
            raise UserError(f"--seeds {self.seeds}: at least one is needed")
        preset, out, seeds = self._preset(), self.out or Path("runs") / self.name, range(self.seeds)
        if self.status:
            print("\n".join(status_lines(preset, seeds, out, self.only)))
            return
        page = run_study(preset, seeds, out, self.only)
        print((page.parent / "claims.md").read_text())
        print(f"report: {page}")

    def _preset(self):
        from vsr_jax.study.micro import micro_preset

        size = "quick" if self.quick else "full" if self.full else "standard"
        return micro_preset(size, base=self.base, world=self.world)
