"""Commands of `vsr` that compare policies. Without JAX, like `cli.py`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Fields of every command that samples and checks."""

    out: Path
    """Folder for rollouts, tables, figures and index.html; what it already holds is not done again."""
    names: tuple[str, ...] = ()
    """Names of the models; else parts of their paths."""
    limit: int | None = None
    """The first LIMIT prompts only."""
    spread: bool = False
    """With --limit: that many prompts with the make-up of the whole, by level of math problems and by number of
    instructions, instead of the first."""
    framing: str = "auto"
    """What stands around a prompt: auto, raw, chat, bare, dapo_math, boxed, ... or a Jinja file. auto is chat+boxed on
    math and chat on instructions where the tokenizer has a chat template, else boxed and raw; micro on micro tasks."""
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
    mesh: str = ""
    """Devices of this machine to share the work, as in data=2,tensor=4; by default one."""


@dataclass(frozen=True, kw_only=True)
class Measure(Sampling):
    """Sample benchmarks, verify, and print what policies can reach: mean@n, best@k, buckets, openings, half-life.

    Several policies are measured on the same prompts and compared with the first.
    """

    model: tuple[str, ...]
    """Model directories or hub ids."""
    benchmark: tuple[str, ...]
    """Names: math_train, math500, math500_128, aime24, aime25, gsm8k, ifeval, ifbench, mathif, reasonif, iftrain,
    micro_math, micro_instructions or micro_joint."""
    data: tuple[Path, ...] = ()
    """JSONL files with the fields of the public data sets, one a benchmark; the hub is asked when none is given."""
    decoding: Literal["plain", "support", "math500_plan", "aime_plan", "opd_validation", "joint"] = "plain"
    """plain: 32 samples of the policy itself, 1024 tokens. The others are the paper's: support 32 x 8192 at top-p 0.7,
    math500_plan 16 and aime_plan 32 x 12288, opd_validation 16 x 31744, joint 16 x 4096, these at 0.7 / 0.95. The
    following options change single values."""
    samples: int | None = None
    """Responses a prompt (n)."""
    max_tokens: int | None = None
    """Longest response in tokens."""
    temperature: float | None = None
    """0 decodes greedily."""
    top_p: float | None = None
    """1.0 samples the policy itself; the paper's evaluations use 0.7."""
    top_k: int | None = None
    """Likeliest tokens kept; 0 keeps all."""
    seed: int | None = None
    """Of the samples."""
    extract: Literal["auto", "boxed", "answer_line"] | None = None
    """Where a math answer is looked for; auto unless given, boxed on micro tasks."""
    require_stop: bool = False
    """A response cut at the length limit does not pass; always so on micro tasks."""
    trajectory: bool = False
    """The models are checkpoints of one run, in order, or one training run's folder, whose checkpoints are then
    measured: adds curves and correlations over them."""

    def run(self) -> None:
        """Measures and prints the tables."""
        from vsr_jax.study.measure_command import measure

        options = {f.name: getattr(self, f.name) for f in fields(self)}
        print(measure(preset=options.pop("decoding"), **options))


@dataclass(frozen=True, kw_only=True)
class Joint(Sampling):
    """Correct answers (C), followed instructions (F), both in one response (J), and how far J is from C times F."""

    model: tuple[str, ...]
    """Model directories or hub ids; changes are against the first."""
    benchmark: tuple[str, ...]
    """mathif, reasonif or micro_joint."""
    data: tuple[Path, ...] = ()
    """JSONL files with the fields of the public data sets, one a benchmark; the hub is asked when none is given."""
    decoding: Literal["plain", "support", "math500_plan", "aime_plan", "opd_validation", "joint"] = "joint"
    """As for `vsr measure`; the following options change single values."""
    samples: int | None = None
    """Responses a prompt."""
    max_tokens: int | None = None
    """Longest response in tokens; micro responses have at most 48."""
    temperature: float | None = None
    """0 decodes greedily."""
    top_p: float | None = None
    """1.0 samples the policy itself."""
    top_k: int | None = None
    """Likeliest tokens kept; 0 keeps all."""
    seed: int | None = None
    """Of the samples."""
    require_stop: bool = False
    """A response cut at the length limit does not pass; always so on micro tasks."""

    def run(self) -> None:
        """Measures and prints the tables."""
        from vsr_jax.study.joint_command import joint

        options = {f.name: getattr(self, f.name) for f in fields(self)}
        print(joint(preset=options.pop("decoding"), **options))


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
    mesh: str = ""
    """Devices of this machine to share the work, as in data=2,tensor=4; by default one."""

    def run(self) -> None:
        """Localises and prints the main tables."""
        from vsr_jax.study.localize_command import localize

        print(localize(**{f.name: getattr(self, f.name) for f in fields(self)}))


@dataclass(frozen=True, kw_only=True)
class Intervene(Sampling):
    """What a forced opening does: one policy under many conditions, all in one queue, beside itself left free."""

    model: str
    """Model directory or hub id of the policy that decodes."""
    benchmark: str
    """As for `vsr measure`: aime24, math500, ..., or micro_math, micro_instructions, micro_joint."""
    other: str = ""
    """Model whose first choice is forced, a prompt at a time."""
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

    def run(self) -> None:
        """Intervenes and prints the table of effects."""
        from vsr_jax.study.intervene_command import intervene

        print(intervene(**{f.name: getattr(self, f.name) for f in fields(self)}))


@dataclass(frozen=True)
class Openings:
    """How opening rules agree with labels that a reader gave: confusion table, recall, precision, disagreements."""

    labels: Path
    """JSONL file with text, label, and optionally prompt_kind (math, instructions) and keywords."""
    rules: Path | None = None
    """Opening rules of your own, in the form of vsr_jax/support/openings.toml."""

    def run(self) -> None:
        """Prints the report."""
        from vsr_jax.study.openings_command import openings

        print(openings(self.labels, self.rules))
