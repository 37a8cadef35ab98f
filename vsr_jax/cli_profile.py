"""The command `vsr profile`. Without JAX, like `cli.py`."""

import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Time the rollout loop on this machine's devices and compare it with what they can do.

    rollout: compile time, prefill and decode tokens/s, time to first token, slot occupancy, bytes/s and FLOP/s beside
    the device's roofline, and a trace that XProf and Perfetto open.
    """

    what: Annotated[tyro.conf.Positional[Literal["rollout"]], tyro.conf.arg(metavar="rollout")]
    """What to profile."""
    model: str
    """Model directory or hub id."""
    trace: Path | None = None
    """Folder for the trace; none is written when empty."""
    prompts: int = 8
    """Prompts of random tokens."""
    samples: int = 32
    """Responses a prompt (n)."""
    prompt_length: int = 256
    """Tokens of a prompt."""
    max_tokens: int = 128
    """Longest response."""
    stop: bool = False
    """Let stop tokens end responses; otherwise each takes all its tokens."""
    slots: int = 256
    """Responses decoded together."""
    top_p: float = 1.0
    """Smallest set of likeliest tokens whose mass reaches it."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of parameters and computing."""
    mesh: str = ""
    """Devices of this machine to share the work, as in data=2,tensor=4; by default one."""
    seed: int = 0
    """Of prompts and responses."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        """Profiles and prints."""
        _leave_tpus_out_where_there_are_none()
        from vsr_jax.study.profile_command import ProfileSettings, as_json, profile_rollout, table

        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("what", "json")}
        found = profile_rollout(ProfileSettings(**values), say=lambda text: print(text, file=sys.stderr, flush=True))
        print(as_json(found) if self.json else table(found))


def _leave_tpus_out_where_there_are_none() -> None:
    """A profiler that finds libtpu without a TPU may end the process with a segmentation fault (libtpu 0.0.40)."""
    if any(Path("/dev").glob("accel*")) or any(Path("/dev/vfio").glob("[0-9]*")):
        return
    os.environ.setdefault("JAX_PLATFORMS", "cuda,cpu" if Path("/dev/nvidia0").exists() else "cpu")
