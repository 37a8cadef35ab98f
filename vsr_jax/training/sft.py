"""The supervised loop: packed rows, cross-entropy on responses."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import jax
import optax

from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.objectives.sft import cross_entropy
from vsr_jax.training.batches import pack
from vsr_jax.training.settings import SftSettings
from vsr_jax.training.step import adamw, init_state, make_update

Text = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt and of its response."""


def train_sft(
    config: ModelConfig,
    params: Params,
    texts: Iterator[Text],
    settings: SftSettings,
    *,
    metrics_file: Path | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
) -> Params:
    """Trains on a stream of texts and returns the parameters.

    Args:
      texts: consumed in order; a text that does not fit a step's rows opens the next step.
      metrics_file: gets a JSON line a step.
      on_step: called with (steps done, metrics) after each step.
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
    update = make_update(config, cross_entropy(), optimizer, remat=False)
    state = init_state(params, optimizer)
    waiting: list[Text] = []
    for step in range(settings.steps):
        taken: list[Text] = []

        def take(source: Iterator[Text] = chain(waiting, texts), taken: list[Text] = taken) -> Iterator[Text]:
            for text in source:
                taken.append(text)
                yield text

        batch, packed = pack(take(), settings.rows, settings.width)
        waiting = taken[packed:]
        state, metrics = update(state, batch)
        if metrics_file is not None or on_step is not None:
            line = {"step": step, **{name: float(value) for name, value in jax.device_get(metrics).items()}}
            if metrics_file is not None:
                with metrics_file.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            if on_step is not None:
                on_step(step + 1, line)
    return state.params
