"""A preemption notice (SIGTERM) ends a loop after its current step instead of in the middle of it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import jax
from jax.experimental import multihost_utils


@contextmanager
def stop_on_sigterm() -> Iterator[Callable[[int], bool]]:
    """Yields `stopping(step)`: whether SIGTERM came. Every process must ask at every step, and all get one answer.

        with stop_on_sigterm() as stopping:
            for step in range(first, steps):
                ...
                if stopping(step):
                    checkpoints.save(step + 1, state)
                    checkpoints.wait()
                    raise SystemExit(0)

    On one process a handler notes the signal; the one before it comes back at the end. On several the runtime's own
    notice is used, which settles on a step that all of them reach. Threads other than the main one get no signals.
    """
    if jax.process_count() > 1:
        yield multihost_utils.reached_preemption_sync_point
        return
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield lambda step: False
        return

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        came.set()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield lambda step: came.is_set()
    finally:
        signal.signal(signal.SIGTERM, before)
