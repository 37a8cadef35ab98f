"""Claims: one runner a stage, however many start at once; dead runners lose theirs, living ones do not."""

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from vsr_jax.errors import UserError
from vsr_jax.study.claims import NAME, claimed, owner, release, try_claim
from vsr_jax.study.runs import Stage, run_stages, stage_status

RUNNER = """
import sys, time
from pathlib import Path
from vsr_jax.study.claims import claimed
root = Path(sys.argv[1])
while time.time() < float(sys.argv[2]):
    pass
for stage in range(20):
    with claimed(root / str(stage)) as mine:
        if mine and not (root / str(stage) / "done").exists():
            with (root / "log").open("a") as log:
                log.write(f"{stage}\\n")
            time.sleep(0.01)
            (root / str(stage) / "done").touch()
"""


def test_runners_that_start_together_do_every_stage_once(tmp_path: Path) -> None:
    begin = time.time() + 3
    runners = [subprocess.Popen([sys.executable, "-c", RUNNER, str(tmp_path), str(begin)]) for _ in range(4)]
    assert [runner.wait() for runner in runners] == [0] * 4
    assert sorted(map(int, (tmp_path / "log").read_text().split())) == list(range(20))
    assert not list(tmp_path.rglob(f"{NAME}*"))


def test_a_claim_is_one_runners_until_it_is_released(tmp_path: Path) -> None:
    token = try_claim(tmp_path / "stage")
    assert token
    assert try_claim(tmp_path / "stage") is None
    assert f"process {os.getpid()}" in owner(tmp_path / "stage")
    release(tmp_path / "stage", "someone else's token")
    assert owner(tmp_path / "stage")
    release(tmp_path / "stage", token)
    assert owner(tmp_path / "stage") is None
    assert try_claim(tmp_path / "stage")


def test_a_dead_runners_claim_expires(tmp_path: Path) -> None:
    token = try_claim(tmp_path)
    os.utime(tmp_path / NAME, (time.time() - 400,) * 2)
    assert owner(tmp_path) is None
    other = try_claim(tmp_path)
    assert other not in (None, token)
    # The one that was thought dead wakes up and takes nothing away.
    release(tmp_path, token)
    assert owner(tmp_path)
    # A claim whose owner died while writing it.
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / NAME).touch()
    assert owner(tmp_path / "half") == "a runner that is just starting"
    os.utime(tmp_path / "half" / NAME, (0, 0))
    assert try_claim(tmp_path / "half")


def test_a_process_that_is_gone_loses_its_claim_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vsr_jax.study.claims import try_claim; try_claim(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert (tmp_path / NAME).exists()
    assert owner(tmp_path) is None
    assert try_claim(tmp_path)


def test_a_living_runner_keeps_its_claim_beyond_the_expiry(tmp_path: Path) -> None:
    with claimed(tmp_path, expires_s=0.5) as mine:
        assert mine
        for _ in range(8):
            time.sleep(0.2)
            with claimed(tmp_path, expires_s=0.5) as second:
                assert not second
    assert owner(tmp_path) is None


def test_a_runner_that_lost_its_claim_is_told(tmp_path: Path) -> None:
    def stand_still() -> None:
        with claimed(tmp_path, expires_s=0.5):
            (tmp_path / NAME).unlink()
            assert try_claim(tmp_path)
            time.sleep(0.4)

    with pytest.raises(UserError, match="another runner took this stage over"):
        stand_still()
    assert owner(tmp_path)


def counting(log: Path, seconds: float = 0.05):
    def run(folder, inputs, report) -> None:
        with log.open("a") as file:
            file.write(f"{folder.name.split('-')[0]}\n")
        time.sleep(seconds)

    return run


def test_two_runners_share_the_stages_of_a_study(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = Stage("base", {}, (), counting(log))
    stages = [first, *(Stage(f"branch{i}", {}, (first,), counting(log)) for i in range(6))]
    assert {status for _, status in stage_status(stages, tmp_path)} == {"missing"}
    runners = [Thread(target=run_stages, args=(stages, tmp_path), kwargs={"wait_s": 0.02}) for _ in range(2)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert sorted(log.read_text().split()) == sorted(["base", *(f"branch{i}" for i in range(6))])
    assert log.read_text().split()[0] == "base"
    assert {status for _, status in stage_status(stages, tmp_path)} == {"done"}


def test_status_names_the_runner(tmp_path: Path) -> None:
    stage = Stage("base", {}, (), counting(tmp_path / "log"))
    with claimed(stage.folder(tmp_path)):
        assert stage_status([stage], tmp_path) == [("base", f"running: {owner(stage.folder(tmp_path))}")]
