"""The micro world: a small language with math problems and real IFEval constraints.

A prompt becomes ids as its words followed by `<|assistant|>`; a response ends with `<eos>`.

    from vsr_jax.data import micro

    rows = micro.math_rows(micro.DEFAULT, seed=0, n=64, split="evaluation")
    ids = micro.encode_prompt(micro.build_tokenizer(), rows[0])
"""

from pathlib import Path

from vsr_jax.data.micro.corpus import OPENINGS, Example, corpus
from vsr_jax.data.micro.prompts import instruction_rows, joint_rows, math_rows, split_of
from vsr_jax.data.micro.vocabulary import (
    ASSISTANT,
    EOS,
    PAD,
    UNKNOWN,
    build_tokenizer,
    encode_prompt,
    save_tokenizer,
    vocabulary,
)
from vsr_jax.data.micro.world import DEFAULT, PRESETS, MicroWorld

BASE = Path(__file__).parent / "base"
"""The Base policy that ships with the package; `training.json` in it says how it was made."""

__all__ = [
    "ASSISTANT",
    "BASE",
    "DEFAULT",
    "EOS",
    "OPENINGS",
    "PAD",
    "PRESETS",
    "UNKNOWN",
    "Example",
    "MicroWorld",
    "build_tokenizer",
    "corpus",
    "encode_prompt",
    "instruction_rows",
    "joint_rows",
    "math_rows",
    "save_tokenizer",
    "split_of",
    "vocabulary",
]
