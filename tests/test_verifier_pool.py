"""The worker pool: order, deadlines, lost workers, threads."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path

import pytest
from pool_checks import check

from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.verifiers import Pool


@pytest.fixture(scope="module")
def pool():
    with Pool(2, 0.5) as made:
        yield made


def statuses(pool, items):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return [verdict.status for verdict in pool.map(check, items)]


def test_waiting_does_not_count_and_order_is_kept():
    """960 rows at once on 8 workers: each has its whole deadline, however long it waits for its turn."""
    items = [("math", str(i), rf"\boxed{{{i if i % 7 else -1}}}") for i in range(960)]
    with Pool(8, 5.0) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        verdicts = pool.map(check, items)
    assert [verdict.passed for verdict in verdicts] == [i % 7 != 0 for i in range(960)]


def test_total_time_beyond_the_deadline_is_no_timeout(pool):
    assert statuses(pool, [("sleep", 0.1)] * 14) == ["correct"] * 14


def test_hung_and_dead_workers_are_replaced(pool):
    items = [("ok",), ("hang",), ("die",), ("raise",), ("nonsense",), ("ok",)] + [("ok",)] * 20
    assert statuses(pool, items) == ["correct", "timeout", "error", "error", "error", "correct"] + ["correct"] * 20
    assert statuses(pool, [("ok",)] * 4) == ["correct"] * 4


def test_more_losses_than_workers(pool):
    assert statuses(pool, [("hang",)] * 3 + [("die",)] * 3 + [("ok",)]) == ["timeout"] * 3 + ["error"] * 3 + ["correct"]


def test_a_missing_verdict_has_no_parts_and_says_why(pool):
    with pytest.warns(RuntimeWarning, match=r"0 of 2 checks ran out of time and 1 failed"):
        lost, kept = pool.map(check, [("die",), ("ok",)])
    assert (lost.passed, lost.parts, lost.detail) == (False, (), "the worker died with exit code 3")
    assert kept.passed


def test_few_losses_are_not_warned_about(pool):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdicts = pool.map(check, [("raise",)] + [("ok",)] * 150)
    assert verdicts[0].status == "error"


def test_adversarial_answers_within_the_deadline(pool):
    answers = ["10^{10^{10}}", "9^{9^{9^{9}}}", "100000000!", "{" * 10_000, "7" * 100_000, "3"]
    items = [("math", "3", rf"\boxed{{{answer}}}") for answer in answers]
    assert statuses(pool, items) == ["wrong", "wrong", "wrong", "no_answer", "wrong", "correct"]


def test_a_malformed_row_is_raised_and_the_pool_lives_on(pool):
    with pytest.raises(UserError, match="row 7: field `answer`"):
        pool.map(check, [("sleep", 0.2), ("malformed",)] + [("ok",)] * 10)
    assert statuses(pool, [("ok",)] * 3) == ["correct"] * 3


def test_what_cannot_be_sent_is_raised_and_the_pool_lives_on(pool):
    with pytest.raises(UserError, match="importable function"):
        pool.map(lambda item: item, [1])
    with pytest.raises(UserError, match="items that pickle"):
        pool.map(check, [("sleep", 0.2), ("ok",), ("ok", threading.Lock())])
    assert statuses(pool, [("ok",)] * 3) == ["correct"] * 3


def check_row_of(row, response):
    from vsr_jax.data.rows import check_row

    return check_row(row, response)


def test_partials_and_rows(pool):
    row = Row("one", "2 + 2?", "math", "4")
    verdicts = pool.map(partial(check_row_of, row), [r"\boxed{4}", r"\boxed{5}"])
    assert [verdict.passed for verdict in verdicts] == [True, False]


def test_from_several_threads(pool):
    found = {}

    def work(name):
        found[name] = statuses(pool, [("math", str(name), rf"\boxed{{{i}}}") for i in range(4)])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[name] == ["correct" if i == name else "wrong" for i in range(4)] for name in range(4))


def test_no_items(pool):
    assert pool.map(check, []) == []


def test_bad_bounds_and_use_after_close():
    with pytest.raises(UserError, match="workers=0"):
        Pool(0, 1.0)
    with pytest.raises(UserError, match="deadline_s=0"):
        Pool(1, 0)
    with Pool(1, 1.0) as pool:
        pass
    with pytest.raises(UserError, match="closed"):
        pool.map(check, [("ok",)])


def run_script(tmp_path: Path, body: str) -> subprocess.Popen:
    path = tmp_path / "script.py"
    path.write_text(body)
    root = Path(__file__).resolve().parent.parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")])}
    return subprocess.Popen(
        [sys.executable, str(path)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_script_without_main_guard_is_told_so(tmp_path):
    body = (
        "from pool_checks import check\nfrom vsr_jax.verifiers import Pool\nprint(Pool(1, 1.0).map(check, [('ok',)]))\n"
    )
    _, errors = run_script(tmp_path, body).communicate(timeout=60)
    assert 'if __name__ == "__main__":' in errors.splitlines()[-1]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for the worker in /proc")
def test_workers_end_with_a_killed_parent(tmp_path):
    body = (
        "from pool_checks import check\nfrom vsr_jax.verifiers import Pool\n"
        "if __name__ == '__main__':\n"
        "    pool = Pool(1, 60.0)\n    print(pool._workers[0].process.pid, flush=True)\n"
        "    pool.map(check, [('hang',)])\n"
    )
    script = run_script(tmp_path, body)
    assert script.stdout is not None
    worker = Path("/proc", script.stdout.readline().strip(), "stat")
    time.sleep(1.0)  # the worker is in its endless loop now
    script.send_signal(signal.SIGKILL)
    script.communicate()
    for _ in range(100):
        if not worker.exists() or worker.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its parent")
