"""The supervised loop: packed rows, cross-entropy on responses."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path

import jax
import optax
from jax.sharding import Mesh

from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.objectives.sft import cross_entropy
from vsr_jax.training.batches import PackedBatch, pack
from vsr_jax.training.checkpoint import Checkpoints, check_same_settings, rewind_metrics
from vsr_jax.training.place import place_on
from vsr_jax.training.preemption import stop_on_sigterm
from vsr_jax.training.settings import SftSettings
from vsr_jax.training.step import adamw, make_update

Text = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt and of its response."""

MAY_CHANGE = ("checkpoint_every", "keep", "remat")
"""Settings that a run may go on with although they differ."""


def train_sft(
    config: ModelConfig,
    params: Params,
    texts: Iterator[Text],
    settings: SftSettings,
    *,
    metrics_file: Path | None = None,
    checkpoints: Path | None = None,
    take: bool = False,
    mesh: Mesh | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
) -> Params:
    """Trains on a stream of texts and returns the parameters.

    Args:
      texts: consumed in order; a text that does not fit a step's rows opens the next step. A run that goes on from a
        checkpoint gets the stream from its beginning and passes over what it has used.
      metrics_file: gets a JSON line a step.
      checkpoints: folder of checkpoints; the run goes on from the last of them, and SIGTERM makes one and exits
        with 0. None keeps nothing.
      take: `params` may be used up, which saves their memory.
      mesh: over the devices of all processes, which all make the same call; the first one writes.
      on_step: called with (steps done, metrics) after each step.

    Raises:
      UserError: the checkpoints are of a run with other settings.
    """
    hold = int(settings.hold * settings.steps)
    rate = optax.join_schedules(
        [
            optax.constant_schedule(settings.learning_rate),
            optax.linear_schedule(settings.learning_rate, 0.0, max(settings.steps - hold, 1)),
        ],
        [hold],
    )
    optimizer = adamw(rate, weight_decay=settings.weight_decay, beta2=settings.beta2, clip=settings.clip_norm)
    place = place_on(config, mesh)
    like = place.like(params, optimizer)
    update = place.update(make_update(config, cross_entropy(), optimizer, remat=settings.remat), like)
    first, used, held = 0, 0, dataclasses.asdict(settings)
    with ExitStack() as stack:
        saved = stack.enter_context(Checkpoints(checkpoints, keep=settings.keep)) if checkpoints else None
        stopping = stack.enter_context(stop_on_sigterm()) if saved else lambda step: False
        if saved and (restored := saved.restore_latest(like)):
            first, state, extra = restored
            check_same_settings(saved.directory, extra, held, MAY_CHANGE)
            used = extra["cursor"]
        else:
            state = place.start(params, optimizer, like, take=take)
        written = metrics_file if jax.process_index() == 0 else None
        if written is not None and saved:
            rewind_metrics(written, first)
        stream = islice(texts, used, None)
        waiting: list[Text] = []
        for step in range(first, settings.steps):
            batch, packed, waiting = _fill(waiting, stream, settings)
            used += packed
            with place.context():
                state, metrics = update(state, place.batch(batch))
            if metrics_file is not None or on_step is not None:
                line = {"step": step, **{name: float(value) for name, value in jax.device_get(metrics).items()}}
                if written is not None:
                    with written.open("a") as file:
                        file.write(json.dumps(line) + "\n")
            else:
                line = {}
            stop = stopping(step)
            if saved and ((step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps or stop):
                saved.save(step + 1, state, {"cursor": used, "settings": held})
            if on_step is not None:
                on_step(step + 1, line)
            if saved and stop and step + 1 < settings.steps:
                saved.wait()
                raise SystemExit(0)
    return state.params


def _fill(waiting: list[Text], texts: Iterator[Text], settings: SftSettings) -> tuple[PackedBatch, int, list[Text]]:
    """A step's batch, how many texts it holds, and those that were looked at and did not fit."""
    taken: list[Text] = []

    def looked_at() -> Iterator[Text]:
        for text in chain(waiting, texts):
            taken.append(text)
            yield text

    batch, packed = pack(looked_at(), settings.rows, settings.width)
    return batch, packed, taken[packed:]
