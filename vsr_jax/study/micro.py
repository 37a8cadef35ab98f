"""The micro preset: the whole study on the embedded Base, in minutes on two cores.

Rates are 300 times the recipe's, the ratio that the miniature's RL rate has to the paper's. `quick` has shorter runs
and leaves an experiment out, `full` has longer ones; what differs stands here and nowhere else.
"""

from dataclasses import replace
from typing import Literal

from vsr_jax.study.grid import Decoding
from vsr_jax.study.preset import Bench, Preset, Prior, Source
from vsr_jax.training.settings import OpdSettings, RlvrSettings, SftSettings

Size = Literal["quick", "standard", "full"]

_RATE = 3e-4
_TOKENS = 48

_RUN = RlvrSettings(prompts=16, samples=16, max_tokens=_TOKENS, learning_rate=_RATE, require_stop=True, extract="boxed")


def micro_preset(size: Size = "standard", *, base: str = "", world: str = "default") -> Preset:
    """The preset in one of three sizes; `standard` is what `vsr study micro` runs."""
    after = {"quick": 20, "standard": 40, "full": 60}[size]
    scan = {"quick": 20, "standard": 40, "full": 100}[size]
    decoding = Decoding(32, _TOKENS, 1.0, 1.0, 1234)
    prompts = 64
    math = Bench("micro_math", "Math", "micro", decoding, prompts)
    instructions = Bench("micro_instructions", "Instructions", "micro", decoding, prompts)
    joint = Bench("micro_joint", "Math with instructions", "micro", replace(decoding, samples=16), prompts)
    distil = OpdSettings(
        steps=50, prompts=16, samples=4, max_tokens=_TOKENS, learning_rate=_RATE, require_stop=True, extract="boxed"
    )
    if_run = replace(_RUN, steps=60)
    # One response a packed row, as the longest prompt and response have 88 tokens together.
    soft = SftSettings(steps=62, rows=8, width=96, learning_rate=300 * 2e-6)  # 10 epochs of 50 texts in eights
    hard = SftSettings(steps=31, rows=32, width=96, learning_rate=300 * 1e-5)  # 20 epochs in batches of 32
    return Preset(
        name="micro",
        about=(
            "A miniature: 275 thousand parameters and a made-up language. It exercises every part of the study and "
            "says nothing about the size of the effects in real models."
        ),
        model=base,
        world=world,
        slots=1024,
        math_train=Source("micro_math", "micro", 2048),
        if_train=Source("micro_instructions", "micro", 2048),
        math=replace(_RUN, steps=40),
        instructions=if_run,
        trajectory=(20, 40) if size == "quick" else (10, 20, 30, 40, 50),
        then_math=replace(_RUN, steps=20 if size == "quick" else 40),
        then_if=replace(_RUN, steps=after),
        betas=(0.0, 0.12) if size == "quick" else (0.0, 0.04, 0.08, 0.12),
        priors={
            "Soft DRI": Prior("DRI", soft),
            "Hard DRI": Prior("DRI", hard),
            "DAI": Prior("DAI", soft),
            "Random": Prior("", soft),
        },
        after_prior=replace(_RUN, steps=after),
        prior_snapshots=(after // 2,),
        opd=replace(distil, steps=20 if size == "quick" else 50),
        scan=replace(distil, steps=scan),
        teacher_steps=(12, 24, 36, 48),  # 20, 40, 60 and 80 of 100 steps, in shares of 60
        if_support=(instructions,),
        math_support=(math,),
        math_buckets=math,
        if_small=instructions,
        prior_source=replace(math, split="train", decoding=replace(decoding, samples=16)),
        localize=(math, instructions),
        localize_prompts=64,
        localize_samples=4,
        positions="micro",
        intervene=(math,),
        intervene_prompts=30,
        sweep=(1, 2, 3, 4, 5, 8, 12, 16, 20, 24, 32),  # responses have 48 tokens at most
        joint=(joint,),
        open_choices=(
            "World, Base, sizes and rates were fixed on runs with seed 0 before any other seed was looked at.",
            "Top-p 1 everywhere, so that rollouts come from the policy that is scored.",
        ),
        skip={7: "the quick form leaves the mitigations out"} if size == "quick" else {},
    )
