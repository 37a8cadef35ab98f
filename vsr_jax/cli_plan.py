"""The command `vsr plan`. Without JAX, like `cli.py`."""

import os
import sys
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Plan:
    """What a study's stages would take on Cloud TPUs: compiled ahead of time, on any Linux machine, without a TPU.

    Exits 1 when a stage does not fit. Needs the package libtpu.
    """

    model: str
    """Preset (qwen3-8b-base) or a directory with a config.json."""
    topology: str
    """Chip and slice: v5e:4x4, v6e:4x4, v5p:2x2x4, v4:2x2x4."""
    mesh: str = ""
    """Of updates and scoring: fsdp=16, or fsdp=8,tensor=2; every chip along fsdp when empty."""
    rollout_mesh: str = ""
    """Of the sampler: data=4,tensor=4; when empty, the least tensor at which weights take a quarter of a chip."""
    stage: str = "rollout,update,score"
    """Stages to compile, with commas between."""
    rows: int = 0
    """Packed rows an update and a scoring call; 0 is one for each chip along data and fsdp."""
    micro: int = 0
    """Rows differentiated at a time; 0 is all."""
    length: int = 9216
    """Tokens a row."""
    slots: int = 0
    """Responses decoded together; 0 is as many as memory suggests."""
    samples: int = 32
    """Responses a prompt."""
    prompt: int = 1024
    """Tokens of a prompt."""
    response: int = 8192
    """Tokens of a response."""
    search: bool = False
    """Find the largest slots and rows that fit; with --rows, the update's largest micro-batch (its divisors)."""
    price: float = 0.0
    """Of one chip an hour, in any currency; prints costs."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        """Plans and prints."""
        # The compiler is all of the TPU software that is wanted: no device must be looked for.
        os.environ["JAX_PLATFORMS"] = "cpu"
        from vsr_jax.study.plan_command import PlanSettings, as_json, plan_stages, table

        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("stage", "json")}
        settings = PlanSettings(stages=tuple(self.stage.split(",")), **values)
        plans = plan_stages(settings, say=lambda text: print(text, file=sys.stderr, flush=True))
        print(as_json(plans) if self.json else table(plans, self.price))
        if not all(p.fits for p in plans):
            raise SystemExit(1)
