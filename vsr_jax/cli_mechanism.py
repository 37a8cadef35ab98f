"""Commands of `vsr` that compare policies. Without JAX, like `cli.py`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Localize:
    """Where policies differ: teacher forcing of two or three along stored responses, and their first tokens."""

    models: tuple[str, ...]
    """Two or three model directories or hub ids over one vocabulary; the first is compared with the others."""
    responses: tuple[Path, ...]
    """Folders that `vsr measure` filled, of any policy; each is walked along."""
    out: Path
    """Folder for tables, figures, tokens-NAME.parquet and index.html."""
    names: tuple[str, ...] = ()
    """Names of the models; else parts of their paths."""
    positions: Literal["recipe", "micro"] = "recipe"
    """Position groups. recipe: 1, 2-4, 5-16, 17-63, interior > 63, last 5 %. micro: for responses of at most 48
    tokens, with an interior that begins after 8."""
    prompts: int | None = None
    """Only the first PROMPTS prompts of each folder."""
    samples: int | None = None
    """Only the first SAMPLES responses of each prompt."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of parameters and computing; logits are float32."""
    rows: int = 32
    """Responses in one pass; lower it when memory is short."""
    revision: str | None = None
    """Hub revision of the models."""
    max_position: int | None = None
    """Context length in place of the config's; recorded in the run folder."""

    def run(self) -> None:
        """Localises and prints the main tables."""
        from vsr_jax.study.localize_command import localize

        print(localize(**{f.name: getattr(self, f.name) for f in fields(self)}))
