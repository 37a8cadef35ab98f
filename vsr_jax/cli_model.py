"""Commands of `vsr` on one model: what it is, and out to a Hugging Face directory. Without JAX, like `cli.py`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Inspect:
    """What a model is: architecture, parameters, context, memory, tokenizer, stop set, and every deviation.

    Weights are checked by their headers, not read; of a hub model only config and tokenizer are fetched.
    """

    model: tyro.conf.Positional[str]
    """Model directory, hub id, or the name of a published Qwen such as qwen3-8b-base, which needs no files."""
    revision: str | None = None
    """Hub revision of the model."""
    max_position: int | None = None
    """Context length in place of the config's."""

    def run(self) -> None:
        """Prints one fact a line."""
        from vsr_jax.study.inspect_command import inspect_model

        print(inspect_model(self.model, revision=self.revision, max_position=self.max_position))


@dataclass(frozen=True)
class Export:
    """Write a model, a run's model or a training checkpoint as a Hugging Face directory.

    Safetensors (with an index above 5 GB), config, tokenizer files and generation config, complete or not at all.
    """

    source: tyro.conf.Positional[str]
    """Model directory, hub id, run folder with a model or checkpoints in it, or a folder of checkpoints."""
    out: tyro.conf.Positional[Path]
    """Directory to write; absent or empty."""
    model: str | None = None
    """Model whose config and tokenizer a checkpoint takes, where its run folder does not say."""
    step: int | None = None
    """Step of a checkpoint; the newest when not given."""
    dtype: Literal["stored", "float32", "bfloat16"] = "stored"
    """stored keeps the weights' own; checkpoints hold float32."""
    revision: str | None = None
    """Hub revision of the model."""
    max_shard_bytes: int = 5_000_000_000
    """Weights beyond it are split into shards."""

    def run(self) -> None:
        """Writes, and prints what was written."""
        from vsr_jax.study.export_command import export

        print(export(**{f.name: getattr(self, f.name) for f in fields(self)}))
