"""The micro study cut down to seconds: every experiment, every kind of stage, two steps of everything."""

from dataclasses import replace

from vsr_jax.study.micro import micro_preset
from vsr_jax.study.preset import Preset


def tiny_preset() -> Preset:
    """Two training steps of 4 x 4 responses, six prompts with four samples."""
    p = micro_preset()
    decoding = replace(p.math_buckets.decoding, samples=4)

    def short(settings, steps=2):
        return replace(settings, steps=steps, prompts=4, samples=4)

    def few(bench):
        return replace(bench, limit=6, decoding=decoding)

    soft = p.priors["Soft DRI"]
    return replace(
        p,
        math_train=replace(p.math_train, limit=32),
        if_train=replace(p.if_train, limit=32),
        math=short(p.math),
        instructions=short(p.instructions),
        then_math=short(p.then_math),
        then_if=short(p.then_if),
        after_prior=short(p.after_prior),
        opd=short(p.opd, 1),
        scan=short(p.scan, 1),
        betas=(0.0, 0.12),
        trajectory=(1,),
        teacher_steps=(1,),
        prior_snapshots=(1,),
        priors={"Soft DRI": replace(soft, sft=replace(soft.sft, steps=2))},
        prior_texts=4,
        if_support=tuple(map(few, p.if_support)),
        math_support=tuple(map(few, p.math_support)),
        math_buckets=few(p.math_buckets),
        if_small=few(p.if_small),
        prior_source=few(p.prior_source),
        localize=tuple(map(few, p.localize)),
        intervene=tuple(map(few, p.intervene)),
        joint=tuple(map(few, p.joint)),
        localize_prompts=4,
        localize_samples=2,
        intervene_prompts=4,
        sweep=(1, 8),
        slots=64,
    )
