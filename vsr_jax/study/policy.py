"""A policy ready to be asked: parameters with their tokenizer and stop set."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsr_jax.data.rows import Row
from vsr_jax.data.templates import encode_prompt
from vsr_jax.data.tokenizer import load_tokenizer, stop_ids
from vsr_jax.model.checkpoint_io import load_model, save_model
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.model.resolve import resolve_model


@dataclass(frozen=True)
class Policy:
    """What sampling and scoring need of a model.

    Attributes:
      name: for tables and figures.
      directory: local model directory.
      revision: hub commit, or None for a local directory.
      stop_ids: every id that ends a response.
    """

    name: str
    directory: Path
    revision: str | None
    config: ModelConfig
    params: Params
    tokenizer: Any
    stop_ids: tuple[int, ...]

    def encode(self, row: Row, framing: str) -> list[int]:
        """Token ids of a row's framed prompt."""
        return encode_prompt(framing, row.prompt, self.tokenizer)


def load_policy(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    dtype: str = "float32",
    param_dtype: str | None = None,
    revision: str | None = None,
    max_position: int | None = None,
) -> Policy:
    """Loads a policy from a model directory or hub id. Raises UserError as `load_model` does."""
    files = resolve_model(os.fspath(path), revision=revision)
    directory = Path(files.directory)
    config, params = load_model(directory, dtype, param_dtype=param_dtype, max_position=max_position)
    tokenizer = load_tokenizer(directory)
    return Policy(
        name or Path(path).name, directory, files.revision, config, params, tokenizer, stop_ids(directory, tokenizer)
    )


def save_policy(policy: Policy, directory: Path) -> None:
    """Writes a policy as a Hugging Face directory, with the tokenizer of the directory it came from."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (policy.directory / name).exists():
            shutil.copyfile(policy.directory / name, directory / name)
    save_model(policy.config, policy.params, directory)
