"""Stages in a run folder: addressed by what they depend on, done once, taken up again after an interrupt."""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

from vsr_jax.errors import UserError
from vsr_jax.parallel.distributed import TOGETHER_S, barrier, hear, tell
from vsr_jax.study.claims import claimed, owner
from vsr_jax.study.work import NONE, Work
from vsr_jax.training.checkpoint import write_json

Report = Callable[[int, int, str], None]
"""`(done, total, note)`: how far a stage is; the note stands beside the bar."""


@dataclass(frozen=True)
class Stage:
    """One piece of work.

    Attributes:
      name: names its folder, and is shown beside the bar.
      settings: everything that its result depends on, as JSON values.
      inputs: stages whose folders it reads.
      run: `(folder, folders of the inputs, report)`; may find its own partial results in the folder.
      work: how much there is to do, for estimates; its results do not depend on it.
      together: whether all processes of a runner run it, each doing its share; otherwise the first one does all.
    """

    name: str
    settings: Mapping[str, Any]
    inputs: "tuple[Stage, ...]"
    run: Callable[[Path, Sequence[Path], Report], None]
    work: Work = NONE
    together: bool = False

    def key(self) -> str:
        """Changes with the settings of the stage or of anything it depends on, and with nothing else."""
        content = [self.name, dict(self.settings), [stage.key() for stage in self.inputs]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]

    def folder(self, root: Path) -> Path:
        """Where its results lie under a run folder."""
        return root / "stages" / f"{self.name}-{self.key()}"

    def done(self, root: Path) -> bool:
        """Whether its results are complete."""
        return (self.folder(root) / "done.json").exists()


def run_stages(stages: Sequence[Stage], root: Path, *, wait_s: float = 5.0) -> None:
    """Runs what is not done yet, in order, with one progress bar a stage. Inputs must come before what reads them.

    Several runners may work on one folder at the same time: each takes stages that nobody has and whose inputs are
    done, and the last ones wait until all is done. Where a runner is several processes, the first one chooses, and the
    others follow it.

    Args:
      wait_s: between two looks at what others are doing.
    """
    if jax.process_index() > 0:
        _follow(stages, root)
        return
    call = _Call()
    left = list(enumerate(stages, 1))
    waiting = False
    while left:
        ready = [(n, s) for n, s in left if s.done(root) or all(i.done(root) for i in s.inputs)]
        finished = [n for n, stage in ready if _done_or_run(stage, root, f"[{n}/{len(stages)}] {stage.name}", n, call)]
        left = [(n, stage) for n, stage in left if n not in finished]
        if left and not finished:
            if not waiting:
                names = ", ".join(stage.name for _, stage in left)
                tqdm.write(f"waiting for other runners: {names}", file=sys.stderr)
            waiting = True
            time.sleep(wait_s)
    call.out(_END)


_END = 0


class _Call:
    """What the first process calls out to the others, one number after another."""

    def __init__(self) -> None:
        self.count = 0

    def out(self, number: int) -> None:
        tell(f"stage {self.count}", str(number))
        self.count += 1

    def next(self) -> int:
        self.count += 1
        return int(hear(f"stage {self.count - 1}", timeout_s=TOGETHER_S))


def _follow(stages: Sequence[Stage], root: Path) -> None:
    """Runs the stages that the first process calls out."""
    call = _Call()
    while (number := call.next()) != _END:
        stage = stages[number - 1]
        stage.run(stage.folder(root), [s.folder(root) for s in stage.inputs], lambda done, total, note="": None)
        barrier(f"{stage.folder(root)}", timeout_s=TOGETHER_S)


def _done_or_run(stage: Stage, root: Path, title: str, number: int, call: _Call) -> bool:
    """Whether a stage is done now: before, or by this runner; not if another one has it."""
    folder = stage.folder(root)
    if stage.done(root):
        tqdm.write(f"{title}: done before", file=sys.stderr)
        return True
    with claimed(folder) as mine:
        if not mine:
            return False
        if not stage.done(root):
            write_json(folder / "stage.json", {"name": stage.name, "settings": dict(stage.settings), **provenance()})
            began = time.monotonic()
            if stage.together:
                call.out(number)
            with _bar(title) as report:
                stage.run(folder, [s.folder(root) for s in stage.inputs], report)
            if stage.together:
                barrier(f"{folder}", timeout_s=TOGETHER_S)
            write_json(folder / "done.json", {"seconds": round(time.monotonic() - began, 1)})
    return True


def stage_status(stages: Sequence[Stage], root: Path) -> list[tuple[str, str]]:
    """Each stage's name and `done`, `running: HOST process N` or `missing`."""

    def one(stage: Stage) -> str:
        if stage.done(root):
            return "done"
        who = owner(stage.folder(root))
        return f"running: {who}" if who else "missing"

    return [(stage.name, one(stage)) for stage in stages]


@contextmanager
def _bar(title: str) -> Iterator[Report]:
    form = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}, {remaining} left]{postfix}"
    with tqdm(desc=title, total=1, bar_format=form, file=sys.stderr, mininterval=0.3, smoothing=0.1) as bar:
        started = False

        def report(done: int, total: int, note: str = "") -> None:
            nonlocal started
            if not started or bar.total != total:
                # Work found done from an earlier run must not count as speed.
                bar.reset(total)
                bar.initial, started = done, True
            bar.n = done
            bar.set_postfix_str(note, refresh=False)
            bar.refresh()

        yield report


def provenance() -> dict[str, str]:
    """What made a result: package version, library versions, git revision where there is one."""
    found = {f"version_{name}": version(name) for name in ("vsr-jax", "jax", "numpy")}
    here = Path(__file__).resolve().parent
    try:
        git = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
        found["git"] = subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        found["git"] = "not a git checkout"
    return found


def claim_folder(out: Path, settings: Mapping[str, Any]) -> None:
    """Makes `out` the home of one run, or takes up the run that it holds.

    Raises:
      UserError: the folder holds a run with other settings; names the first that differs.
    """
    file = out / "settings.json"
    wanted = json.loads(json.dumps(dict(settings)))
    if not file.exists():
        write_json(file, wanted)
        write_json(out / "provenance.json", provenance())
        return
    held = json.loads(file.read_text())
    for name in sorted(held.keys() | wanted.keys()):
        if held.get(name) != wanted.get(name):
            raise UserError(
                f"{out} holds a run with {name} = {held.get(name)!r}, this one has {wanted.get(name)!r}; "
                "choose another --out, or delete the folder"
            )
