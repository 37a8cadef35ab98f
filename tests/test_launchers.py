"""The launchers, against stand-ins that record what they are asked; shellcheck; nothing billable without --yes."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

TPU = Path(__file__).resolve().parent.parent / "tpu"
STAND_IN = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
here = Path(os.environ["RECORD"])
with (here / "calls").open("a") as file:
    file.write(json.dumps([Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
if "describe" in sys.argv:
    states = (here / "states").read_text().split()
    print(states[0])
    (here / "states").write_text(" ".join(states[1:] or states))
if any("vsr train" in argument for argument in sys.argv):
    results = (here / "results").read_text().split() if (here / "results").exists() else ["0"]
    (here / "results").write_text(" ".join(results[1:] or results))
    sys.exit(int(results[0]))
"""
PLACE = ("--name", "pod", "--project", "p", "--zone", "z")


@pytest.fixture
def launch(tmp_path: Path):
    for tool in ("gcloud", "xpk", "sbatch", "squeue", "scancel"):
        (tmp_path / tool).write_text(STAND_IN)
        (tmp_path / tool).chmod(0o755)
    environment = {**os.environ, "RECORD": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run(script: str, *arguments: str) -> tuple[int, str, list[list[str]]]:
        (tmp_path / "calls").write_text("")
        done = subprocess.run([TPU / script, *arguments], capture_output=True, text=True, env=environment)
        return (
            done.returncode,
            done.stderr,
            [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()],
        )

    run.folder = tmp_path
    return run


COMMANDS = {
    ("queued.sh", "create", *PLACE, "--type", "v5litepod-16"),
    ("queued.sh", "delete", *PLACE),
    ("queued.sh", "watch", *PLACE, "--type", "v5litepod-16", "--source", "gs://b/s.tar.gz", "--", "vsr", "train"),
    ("gke.sh", "submit", *PLACE, "--cluster", "c", "--type", "v5litepod-16", "--image", "i", "--", "vsr", "train"),
    ("slurm.sh", "submit", "--name", "job", "--", "vsr", "train"),
    ("slurm.sh", "cancel", "--name", "job"),
}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_nothing_billable_happens_without_yes_and_nothing_at_all_in_a_dry_run(launch, command) -> None:
    code, errors, calls = launch(*command)
    assert (code, calls) == (2, [])
    assert "say --yes" in errors
    script, action, *rest = command
    code, errors, calls = launch(script, action, "--dry-run", *rest)
    assert (code, calls) == (0, [])
    assert errors.startswith("+ ")


def test_queued_resources_from_creation_to_deletion(launch) -> None:
    code, _, calls = launch("queued.sh", "create", *PLACE, "--type", "v5litepod-16", "--spot", "yes", "--yes")
    assert code == 0
    assert calls[0][:6] == ["gcloud", "compute", "tpus", "queued-resources", "create", "pod"]
    assert {"--spot", "v5litepod-16"} <= set(calls[0])
    (launch.folder / "states").write_text("ACCEPTED PROVISIONING ACTIVE")
    code, errors, calls = launch("queued.sh", "wait", *PLACE, "--poll", "0")
    assert (code, len(calls)) == (0, 3)
    assert "pod is PROVISIONING" in errors
    _, _, calls = launch("queued.sh", "install", *PLACE, "--source", "gs://b/s.tar.gz")
    assert "--worker=all" in calls[0]
    assert "vsr_jax[tpu]" in calls[0][calls[0].index("--command") + 1]
    _, _, calls = launch("queued.sh", "run", *PLACE, "--", "vsr", "train", "--out", "a folder; rm -rf /")
    # The command reaches the workers as it was typed, quoted once more for their shell.
    remote = calls[0][calls[0].index("--command") + 1]
    typed = remote.split("PATH; ")[1].split(" 2>&1")[0]
    assert subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {typed}"], capture_output=True, text=True
    ).stdout.splitlines() == [
        "vsr",
        "train",
        "--out",
        "a folder; rm -rf /",
    ]
    _, _, calls = launch("queued.sh", "sync", *PLACE, "--from", "/mnt/runs", "--to", "gs://b/runs")
    assert "gcloud storage rsync --recursive '/mnt/runs' 'gs://b/runs'" in calls[0]
    assert launch("queued.sh", "tail", *PLACE)[0] == 0
    code, _, calls = launch("queued.sh", "delete", *PLACE, "--yes")
    assert "delete" in calls[0]


def test_a_preempted_slice_is_made_again_and_a_failed_command_is_not_repeated(launch) -> None:
    again = (
        "queued.sh",
        "watch",
        *PLACE,
        "--type",
        "t",
        "--source",
        "gs://b/s",
        "--poll",
        "0",
        "--yes",
        "--",
        "vsr",
        "train",
    )
    (launch.folder / "states").write_text("ACTIVE SUSPENDED ACTIVE")
    (launch.folder / "results").write_text("1 0")
    code, errors, calls = launch(*again)
    assert code == 0
    assert "was preempted" in errors
    verbs = [next(v for v in ("create", "delete", "describe", "ssh") if v in call) for call in calls]
    assert verbs == ["create", "describe", "ssh", "ssh", "describe", "delete", "create", "describe", "ssh", "ssh"]
    (launch.folder / "states").write_text("ACTIVE")
    (launch.folder / "results").write_text("1")
    code, errors, _ = launch(*again)
    assert code == 2
    assert "failed while pod is up" in errors


def test_gke_and_slurm_restart_by_themselves(launch) -> None:
    place = ("--cluster", "c", "--project", "p", "--zone", "z")
    _, _, calls = launch(
        "gke.sh",
        "submit",
        *place,
        "--name",
        "w",
        "--type",
        "v5litepod-16",
        "--image",
        "i",
        "--yes",
        "--",
        "vsr",
        "train",
        "a b",
    )
    assert calls[0][:3] == ["xpk", "workload", "create"]
    assert calls[0][calls[0].index("--max-restarts") + 1] == "20"
    assert calls[0][calls[0].index("--command") + 1] == "vsr train a\\ b "
    _, _, calls = launch("gke.sh", "list", *place)
    assert calls[0][:3] == ["xpk", "workload", "list"]
    _, _, calls = launch("slurm.sh", "submit", "--name", "j", "--nodes", "2", "--yes", "--", "vsr", "train")
    assert {"--requeue", "TERM@120", "--ntasks-per-node"} <= set(calls[0])
    assert calls[0][-1].strip() == "srun --kill-on-bad-exit=1 vsr train"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("queued.sh",), "say what to do"),
        (("queued.sh", "create", "--name", "a"), "--project is not given"),
        (("queued.sh", "create", *PLACE, "--typ", "x"), "unknown option --typ"),
        (("queued.sh", "create", *PLACE, "--type"), "--type needs a value"),
        (("queued.sh", "erase", *PLACE), "unknown action erase"),
        (("queued.sh", "run", *PLACE), "no command"),
        (("gke.sh", "submit", "pod"), "unexpected argument pod"),
    ],
)
def test_mistakes_are_named(launch, command, says) -> None:
    code, errors, calls = launch(*command)
    assert (code, calls) == (2, [])
    assert says in errors


def test_shellcheck_has_nothing_to_say() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    scripts = sorted(map(str, TPU.glob("*.sh")))
    run = subprocess.run(["shellcheck", "-x", "-P", str(TPU), *scripts], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
