"""Where metrics go beside metrics.jsonl: TensorBoard and Weights & Biases, both extras that are imported when named."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax

from vsr_jax.errors import UserError

OnStep = Callable[[int, Mapping[str, float]], None]
"""Called with (steps done, metrics) after each step."""


def _missing(name: str, package: str) -> UserError:
    return UserError(f"--log {name} needs the package {package}; install it with: pip install 'vsr-jax[logging]'")


@contextmanager
def tensorboard(out: Path, settings: Mapping[str, Any]) -> Iterator[OnStep]:
    """Writes scalars to `out/tensorboard`. Raises UserError without tensorboardX."""
    try:
        from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise _missing("tensorboard", "tensorboardX") from None
    writer = SummaryWriter(str(out / "tensorboard"))
    writer.add_text("settings", "\n".join(f"    {name}: {value}" for name, value in sorted(settings.items())))

    def on_step(done: int, line: Mapping[str, float]) -> None:
        for name, value in line.items():
            writer.add_scalar(name, value, done)

    try:
        yield on_step
    finally:
        writer.close()


@contextmanager
def wandb(out: Path, settings: Mapping[str, Any]) -> Iterator[OnStep]:
    """Logs to the run named after `out`, which a resumed command goes on with. Raises UserError without wandb."""
    try:
        import wandb as package  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise _missing("wandb", "wandb") from None
    run = package.init(
        project="vsr-jax", name=out.name, id=out.name, resume="allow", dir=str(out), config=dict(settings)
    )
    try:
        yield lambda done, line: run.log(dict(line), step=done)
    finally:
        run.finish()


SINKS = {"tensorboard": tensorboard, "wandb": wandb}


@contextmanager
def open_sinks(names: Sequence[str], out: Path, settings: Mapping[str, Any]) -> Iterator[OnStep]:
    """One function that hands each step's metrics to all named sinks; on several processes only the first logs.

    Raises:
      UserError: a sink's package is not installed.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(SINKS[name](out, settings)) for name in names if jax.process_index() == 0]

        def on_step(done: int, line: Mapping[str, float]) -> None:
            for sink in opened:
                sink(done, line)

        yield on_step
