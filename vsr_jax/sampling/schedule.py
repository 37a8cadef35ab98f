"""Which slot works on which sample: plain host code, without JAX."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Layout:
    """Shapes of one sampling call.

    Attributes:
      lanes, group: P lanes of G slots.
      prompts: B prompts that a lane can hold at a time.
      width: room for one prompt, in tokens.
      ring: response tokens a slot has room for at the start; it grows with the longest live response.
      chunk: decode steps between two visits to the host.
    """

    lanes: int
    group: int
    prompts: int
    width: int
    ring: int
    chunk: int


def bucket(size: int, smallest: int = 16) -> int:
    """Rounds a size up to a power of two or one and a half times one: 16, 24, 32, 48, 64, 96, ..."""
    step = smallest
    while step < size:
        if step * 3 // 2 >= size:
            return step * 3 // 2
        step *= 2
    return step


def plan_layout(
    lengths: Sequence[int], n: int, max_tokens: int, slots: int, chunk: int | None = None, shards: int = 1
) -> Layout:
    """Chooses shapes for prompts of these lengths with n samples each.

    Where everything fits into the slots at once, each prompt gets a lane with a slot for every sample. Otherwise a lane
    has a quarter as many slots as a prompt has samples, and holds two prompts: slots go on to the second while the
    first one's longest response is still running. Lanes are a multiple of `shards`, over which they are split.
    """
    count = len(lengths)
    # A finished slot idles half a chunk on average: short chunks where responses are short.
    chunk = chunk or min(max(max_tokens // 32, 8), 32)
    ring = min(bucket(max_tokens), max(bucket(chunk), 256))
    if count * n <= slots:
        return Layout(-(-count // shards) * shards, n, 1, bucket(max(lengths)), ring, chunk)
    group = max(1, min(n // 4, slots))
    lanes = max(1, min(slots // group, count) // shards) * shards
    return Layout(lanes, group, 2, bucket(max(lengths)), ring, chunk)


class Schedule:
    """The queue and the slots. Rows are numbered prompt-major: row = prompt index * n + sample.

    `begun` is how many response tokens of each prompt lie there when a slot starts (a forced prefix).

    Attributes:
      row: int32[P, G], the row that a slot works on, -1 where empty.
      place: int32[P, G], which of the lane's prompts the slot answers.
      prompt_length, length: int32[P, G], tokens of its prompt, and of its response so far.
    """

    def __init__(
        self, layout: Layout, lengths: Sequence[int], n: int, *, refill: bool = True, begun: Sequence[int] = ()
    ):
        shape = (layout.lanes, layout.group)
        self.begun = list(begun) or [0] * len(lengths)
        self.layout, self.lengths, self.n, self.refill = layout, lengths, n, refill
        # Long prompts first: the last ones to start then end sooner.
        self.waiting = deque(sorted(range(len(lengths)), key=lambda i: -lengths[i]))
        self.row = np.full(shape, -1, np.int32)
        self.place = np.zeros(shape, np.int32)
        self.prompt_length = np.ones(shape, np.int32)
        self.length = np.zeros(shape, np.int32)
        self.queues: dict[tuple[int, int], deque[int]] = {}  # (lane, place) -> samples that have not started
        self.open: dict[tuple[int, int], int] = {}  # (lane, place) -> samples that have not ended

    def busy(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.waiting or self.open)

    def admit(self) -> Iterator[tuple[int, int, int]]:
        """Fills empty slots; yields (lane, place, prompt index) for every prompt that must be prefilled first."""
        if not self.refill and (self.row >= 0).any():
            return
        # One slot a lane in turn, so that the last prompts spread over the lanes.
        for group in range(self.layout.group):
            for lane in range(self.layout.lanes):
                if self.row[lane, group] >= 0:
                    continue
                place = self._with_samples(lane)
                if place is None:
                    place = self._free_place(lane)
                    if place is None or not self.waiting:
                        continue
                    index = self.waiting.popleft()
                    self.queues[lane, place] = deque(range(index * self.n, (index + 1) * self.n))
                    self.open[lane, place] = self.n
                    yield lane, place, index
                row = self.queues[lane, place].popleft()
                self.row[lane, group], self.place[lane, group] = row, place
                self.prompt_length[lane, group], self.length[lane, group] = (
                    self.lengths[row // self.n],
                    self.begun[row // self.n],
                )

    def _with_samples(self, lane: int) -> int | None:
        return next((b for b in range(self.layout.prompts) if self.queues.get((lane, b))), None)

    def _free_place(self, lane: int) -> int | None:
        return next((b for b in range(self.layout.prompts) if (lane, b) not in self.open), None)

    def finish(self, lane: int, group: int) -> bool:
        """Empties a slot; True when its prompt has no sample left that has not ended."""
        key = lane, int(self.place[lane, group])
        self.row[lane, group], self.length[lane, group] = -1, 0
        self.open[key] -= 1
        if self.open[key]:
            return False
        del self.open[key], self.queues[key]
        return True
