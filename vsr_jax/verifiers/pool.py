"""Score a batch in child processes, so that no check can stop the caller."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from vsr_jax.errors import UserError
from vsr_jax.verifiers.types import Status, Verdict

START_S = 120.0  # a worker that has not started by then never will
MAX_FAILED_STARTS = 3  # in a row
WARN_SHARE = 0.01

Check = Callable[[Any], Verdict]


class Pool:
    """Worker processes that check one row each at a time. Safe from any thread; batches of several threads take turns.

    A row that runs longer than the deadline gets the status `timeout`, one that raises or kills its worker the status
    `error`: both mean that there is no verdict, and the worker is replaced. Waiting for a worker, and the start of a
    worker, are not counted.

    Args:
      workers: how many processes.
      deadline_s: how long one row may run, in seconds.

    Raises:
      UserError: a bound is not positive.
    """

    def __init__(self, workers: int, deadline_s: float):
        if workers < 1 or deadline_s <= 0:
            raise UserError(f"Pool: workers={workers}, deadline_s={deadline_s}: both must be positive")
        self.deadline_s = deadline_s
        self._lock = threading.Lock()
        self._context = multiprocessing.get_context("spawn")
        self._workers = [_Worker(self._context) for _ in range(workers)]
        self._closed = False

    def map(self, check: Check, items: Iterable[Any]) -> list[Verdict]:
        """The verdicts of `check(item)`, in the order of the items.

        Args:
          check: a function of a module, or a `functools.partial` of one, which the workers import by name.
          items: what to check; must pickle.

        Raises:
          UserError: an item is a malformed row, `check` or an item cannot be sent to a worker, or workers cannot start.
        """
        with self._lock:
            if self._closed:
                raise UserError("Pool: is closed; make a new one")
            verdicts = _Batch(self, check, list(items)).run()
        _warn(verdicts)
        return verdicts

    def close(self) -> None:
        """Ends the workers."""
        with self._lock:
            self._closed = True
            for worker in self._workers:
                worker.stop()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Worker:
    """One process and what it is doing."""

    def __init__(self, context: Any):
        self.context = context
        self.check: Check | None = None  # what it has loaded
        self.index: int | None = None  # the item that it runs
        self.due = float("inf")
        self.start()

    def start(self) -> None:
        self.connection, child = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(child,), daemon=True)
        self.process.start()
        child.close()  # so that the death of the process ends the connection
        self.check, self.index, self.due = None, None, float("inf")

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()

    def send(self, kind: str, payload: Any, seconds: float) -> None:
        """Hands over work; a worker that is already dead is noticed when its connection is read."""
        message = ForkingPickler.dumps((kind, payload))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(message)
        self.due = time.monotonic() + seconds


class _Batch:
    """One call of `Pool.map`."""

    def __init__(self, pool: Pool, check: Check, items: Sequence[Any]):
        self.pool, self.check, self.items = pool, check, items
        self.waiting = deque(range(len(items)))
        self.verdicts: dict[int, Verdict] = {}
        self.failed_starts = 0
        self.complaint = ""  # why the batch ends in an error
        for worker in pool._workers:
            worker.check = None

    def run(self) -> list[Verdict]:
        """All verdicts; whatever ends the batch early leaves the workers fit for the next one."""
        try:
            return self.loop()
        except BaseException:
            for worker in self.pool._workers:
                if worker.due != float("inf"):
                    worker.stop()
                    worker.start()
            raise

    def loop(self) -> list[Verdict]:
        workers = self.pool._workers[: len(self.items)]
        while True:
            if self.complaint:
                self.waiting.clear()
            for worker in workers:
                if worker.due == float("inf") and self.waiting:
                    self.feed(worker)
            busy = [worker for worker in workers if worker.due != float("inf")]
            if not busy:
                break
            pause = max(0.0, min(worker.due for worker in busy) - time.monotonic())
            ready = wait([worker.connection for worker in busy], pause)
            for worker in busy:
                if worker.connection in ready:
                    self.read(worker)
                elif time.monotonic() > worker.due and not worker.connection.poll():
                    self.lose(worker, "timeout", f"ran longer than {self.pool.deadline_s} s")
        if self.complaint:
            raise UserError(self.complaint)
        return [self.verdicts[index] for index in range(len(self.items))]

    def feed(self, worker: _Worker) -> None:
        try:
            if worker.check is None:
                worker.send("load", self.check, START_S)
            else:
                worker.index = self.waiting.popleft()
                worker.send("run", self.items[worker.index], self.pool.deadline_s)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise UserError(f"Pool: needs an importable function and items that pickle: {error}") from None

    def read(self, worker: _Worker) -> None:
        try:
            kind, payload = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            self.lose(worker, "error", f"the worker died with exit code {worker.process.exitcode}")
            return
        index, worker.index, worker.due = worker.index, None, float("inf")
        if kind == "loaded":
            worker.check = self.check
            self.failed_starts = 0
        elif kind == "verdict":
            assert index is not None
            self.verdicts[index] = payload
        else:
            self.complaint = payload

    def lose(self, worker: _Worker, status: Status, detail: str) -> None:
        """Replaces a worker that hangs or is dead."""
        if worker.index is None:
            self.failed_starts += 1
            if self.failed_starts >= MAX_FAILED_STARTS:
                self.complaint = (
                    "Pool: worker processes cannot start; a script that makes a Pool must do so under"
                    f' `if __name__ == "__main__":` ({detail})'
                )
        else:
            self.verdicts[worker.index] = _no_verdict(status, detail)
        worker.stop()
        worker.start()


def _no_verdict(status: Status, detail: str) -> Verdict:
    return Verdict(False, (), 0.0, status, detail)


def _warn(verdicts: Sequence[Verdict]) -> None:
    counts = {status: sum(verdict.status == status for verdict in verdicts) for status in ("timeout", "error")}
    if sum(counts.values()) > WARN_SHARE * len(verdicts):
        example = next(verdict.detail for verdict in verdicts if verdict.status in counts)
        warnings.warn(
            f"{counts['timeout']} of {len(verdicts)} checks ran out of time and {counts['error']} failed; they have no"
            f" verdict and are left out of pass counts (such as: {example})",
            RuntimeWarning,
            stacklevel=3,
        )


def _serve(connection: Connection) -> None:
    """The worker: loads a check, then answers every item with a verdict."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    threading.Thread(target=_end_with_parent, daemon=True).start()
    check: Check | None = None
    while True:
        try:
            kind, payload = connection.recv()
        except EOFError:
            return
        except Exception as error:  # what was sent cannot be imported here
            connection.send(("complaint", f"Pool: a worker cannot load the check: {type(error).__name__}: {error}"))
            continue
        if kind == "load":
            check = payload
            connection.send(("loaded", None))
        else:
            assert check is not None
            connection.send(_answer(check, payload))


def _end_with_parent() -> None:
    """Ends a worker, hanging or not, whose parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _answer(check: Check, item: Any) -> tuple[str, Any]:
    try:
        verdict = check(item)
    except UserError as error:  # a malformed row is for the caller to mend
        return "complaint", str(error)
    except BaseException as error:
        return "verdict", _no_verdict("error", f"{type(error).__name__}: {error}"[:300])
    if not isinstance(verdict, Verdict):
        return "verdict", _no_verdict("error", f"the check returned {type(verdict).__name__}, not a Verdict")
    return "verdict", verdict
