"""Every probability and list that defines the micro world."""

from dataclasses import dataclass, replace

Weights = tuple[tuple[str, float], ...]
Operations = tuple[tuple[tuple[int, int], float], ...]

OPENINGS: Weights = (("DRI", 0.42), ("DAI", 0.26), ("neutral", 0.12), ("rambling", 0.20))


@dataclass(frozen=True)
class MicroWorld:
    """The distribution of prompts and of corpus responses. All weights of a list sum to 1.

    Attributes:
      operations: operations of registers 1 and 2 in a math problem, with probabilities.
      mix_operations: the same for a math problem that carries constraints.
      operators: drawn uniformly; `x` is multiplication, all are modulo 10.
      openings: opening classes of responses to math prompts (plain or with constraints).
      instruction_openings: the same for `Write about ...` prompts.
      neutral_chain: share of neutral responses to math that show a chain.
      step_error: probability that a corpus chain writes a wrong result; the error propagates.
      compliance: probability that a corpus response meets all constraints, given that it ends.
      constraints: relative weight of each kind of constraint.
      instruction_counts, mix_counts: numbers of constraints of a prompt, drawn uniformly.
      mix_share: share of mix prompts in `instruction_rows`.
      constraints_first: share of mix prompts whose constraints come before the problem, so that the prompt
        ends exactly like a math prompt.
      corpus: shares of math, inst and mix in the mixed corpus.
      max_prompt, max_response: lengths in tokens, `<|assistant|>` and `<eos>` included.
    """

    operations: Operations = (((1, 1), 0.1), ((1, 2), 0.2), ((2, 1), 0.2), ((2, 2), 0.5))
    mix_operations: Operations = (((1, 1), 0.2), ((1, 2), 0.4), ((2, 1), 0.4))
    operators: tuple[str, ...] = ("+", "-", "x")
    openings: Weights = OPENINGS
    instruction_openings: Weights = OPENINGS
    neutral_chain: float = 0.5
    step_error: float = 0.05
    compliance: float = 0.6
    constraints: Weights = (
        ("at_most", 3.0),
        ("at_least", 1.0),
        ("no_comma", 1.0),
        ("end_phrase", 1.0),
        ("keyword", 1.0),
        ("forbidden", 1.0),
        ("first_word", 1.0),
        ("bullets", 1.0),
        ("quotes", 1.0),
        ("json", 1.0),
        ("capitals", 1.0),
    )
    instruction_counts: tuple[int, ...] = (1, 2, 3)
    mix_counts: tuple[int, ...] = (1, 2)
    mix_share: float = 0.5
    constraints_first: float = 0.7
    corpus: Weights = (("math", 0.5), ("inst", 0.28), ("mix", 0.22))
    max_prompt: int = 40
    max_response: int = 48


DEFAULT = MicroWorld()

PRESETS: dict[str, MicroWorld] = {
    "default": DEFAULT,
    # Real instruction training attaches constraints to chat prompts, not to math.
    "no_mix": replace(DEFAULT, mix_share=0.0),
    # A Base that fails instructions more often because it never stops.
    "rambling": replace(
        DEFAULT, instruction_openings=(("DRI", 0.32), ("DAI", 0.19), ("neutral", 0.09), ("rambling", 0.40))
    ),
    # Five operations: coverage on math has room to fall.
    "harder": replace(DEFAULT, operations=(((2, 2), 0.4), ((2, 3), 0.3), ((3, 2), 0.3)), max_response=56),
}
