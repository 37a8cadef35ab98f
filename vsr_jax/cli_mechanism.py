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


@dataclass(frozen=True)
class Intervene:
    """What a forced opening does: one policy under many conditions, all in one queue, beside itself left free."""

    model: str
    """Model directory or hub id of the policy that decodes."""
    benchmark: str
    """As for `vsr measure`: aime24, math500, ..., or micro_math, micro_instructions, micro_joint."""
    out: Path
    """Folder for rollouts (a folder a condition), tables, figures and index.html; taken up again where it stopped."""
    other: str = ""
    """Model whose first choice is forced, a prompt at a time."""
    names: tuple[str, ...] = ()
    """Names of the two models."""
    reverse: bool = False
    """The other way round as well: the other model decodes, this one's first choice is forced."""
    conditions: tuple[str, ...] = ()
    """From: other (its likeliest first token), second (own second token), dri, dai (prefixes), neutral (a prefix as
    long as dri's), frequent (a random frequent token). All that are possible when none is given; free is always
    there."""
    text: tuple[str, ...] = ()
    """Texts of your own to force."""
    sweep: tuple[int, ...] = ()
    """Positions at which the other model's first token is forced too; the paper's are 1 2 3 4 5 8 12 16 20 24 32 50 75
    100."""
    seam: Literal["moved", "exact"] = "moved"
    """Blanks at the end of forced text: moved leaves them to the policy, exact forces them."""
    data: Path | None = None
    """JSONL file with the fields of the public data set; the hub is asked when it is not given."""
    limit: int | None = None
    """The first LIMIT prompts only."""
    samples: int = 32
    """Responses a prompt and condition."""
    max_tokens: int = 1024
    """Longest response in tokens, forced ones included. Micro responses have at most 48."""
    temperature: float = 1.0
    """0 decodes greedily."""
    top_p: float = 0.7
    """As in the paper's interventions."""
    top_k: int = 0
    """Likeliest tokens kept; 0 keeps all."""
    seed: int = 1234
    """Of the samples and of the random tokens."""
    framing: str = "auto"
    """What stands around a prompt, as for `vsr measure`."""
    rules: Path | None = None
    """Opening rules of your own, in the form of vsr_jax/support/openings.toml."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of parameters and computing."""
    rows: int = 256
    """Responses decoded together; lower it when memory is short."""
    workers: int = 0
    """Processes that verify; 0 verifies in this process, without a deadline."""
    deadline: float = 10.0
    """Seconds a worker may spend on one response."""
    revision: str | None = None
    """Hub revision of the models."""
    max_position: int | None = None
    """Context length in place of the config's; recorded in the run folder."""

    def run(self) -> None:
        """Intervenes and prints the table of effects."""
        from vsr_jax.study.intervene_command import intervene

        print(intervene(**{f.name: getattr(self, f.name) for f in fields(self)}))
