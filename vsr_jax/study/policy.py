"""A policy ready to be asked: parameters with their tokenizer and stop set."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from vsr_jax.data.rows import Row
from vsr_jax.data.templates import encode_prompt
from vsr_jax.data.tokenizer import load_tokenizer, stop_ids
from vsr_jax.model.checkpoint_io import load_model, save_model
from vsr_jax.model.config import ModelConfig, parse_config, read_config
from vsr_jax.model.params import Params
from vsr_jax.model.resolve import resolve_model
from vsr_jax.parallel.rules import RULES, Rules, sharding_of


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
    mesh: Mesh | None = None,
    rules: Rules = RULES,
) -> Policy:
    """Loads a policy from a model directory or hub id, each device its own slices of the files where there is a mesh.

    Args:
      mesh, rules: where the parameters go.

    Raises:
      UserError: as `load_model`.
    """
    files = resolve_model(os.fspath(path), revision=revision)
    directory = Path(files.directory)
    where = mesh and sharding_of(parse_config(read_config(directory / "config.json")), mesh, rules)
    config, params = load_model(directory, dtype, param_dtype=param_dtype, max_position=max_position, sharding_of=where)
    tokenizer = load_tokenizer(directory)
    return Policy(
        name or Path(path).name, directory, files.revision, config, params, tokenizer, stop_ids(directory, tokenizer)
    )


def save_policy(policy: Policy, directory: Path) -> None:
    """Writes a policy as a Hugging Face directory, with the tokenizer of the directory it came from.

    On a mesh of several processes all must call; the first one writes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if jax.process_index() == 0 and (policy.directory / name).exists():
            shutil.copyfile(policy.directory / name, directory / name)
    save_model(policy.config, policy.params, directory)
