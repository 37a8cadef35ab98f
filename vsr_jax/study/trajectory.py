"""The checkpoints of a training run as model directories, to measure them one by one."""

from pathlib import Path

from vsr_jax.errors import UserError
from vsr_jax.study.export_command import checkpoint_steps, export


def checkpoint_models(run: Path, out: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Writes each checkpoint of a run to `out/checkpoint-STEP` where it is not there yet.

    Args:
      run: folder that holds `checkpoints`, or that folder itself.
      out: folder for the model directories.

    Returns:
      The directories in order of steps, and names for them.

    Raises:
      UserError: fewer than two checkpoints; or as `export`.
    """
    steps = checkpoint_steps(run / "checkpoints") or checkpoint_steps(run)
    if len(steps) < 2:
        raise UserError(
            f"{run}: holds {len(steps)} checkpoints, a trajectory needs at least two; train with a shorter "
            "checkpoint interval that keeps them, or name models in order with --model"
        )
    folders = [out / f"checkpoint-{step}" for step in steps]
    for step, folder in zip(steps, folders, strict=True):
        if not folder.exists():
            export(run, folder, step=step)
    return tuple(map(str, folders)), tuple(f"step {step}" for step in steps)
