"""The policies of the study, each a function of the preset and the training seed."""

from dataclasses import replace

from vsr_jax.study import kinds
from vsr_jax.study.kinds import PolicyAt
from vsr_jax.study.preset import Preset, with_seed


def base(preset: Preset, seed: int = 0) -> PolicyAt:
    """The policy that everything starts from, the same under every seed."""
    return kinds.base(preset)


def math_rlvr(preset: Preset, seed: int) -> PolicyAt:
    """Base trained by RLVR on math."""
    return kinds.rlvr(preset, "Math-RLVR", base(preset), preset.math_train, with_seed(preset.math, seed))


def if_rlvr(preset: Preset, seed: int) -> PolicyAt:
    """Base trained by RLVR on instructions, with the snapshots that the trajectory and the teachers need."""
    kept = sorted({*preset.trajectory, *preset.teacher_steps})
    settings = with_seed(preset.instructions, seed)
    return kinds.rlvr(preset, "IF-RLVR", base(preset), preset.if_train, settings, kept)


def if_snapshots(preset: Preset, seed: int) -> list[PolicyAt]:
    """The IF run from its start to its end."""
    run = if_rlvr(preset, seed)
    kept = [kinds.snapshot(run, step, f"IF-RLVR step {step}") for step in preset.trajectory]
    return [base(preset), *kept, run]


def if_then_math(preset: Preset, seed: int) -> PolicyAt:
    """Math-RLVR from the IF endpoint."""
    settings = with_seed(preset.then_math, seed)
    return kinds.rlvr(preset, "IF -> Math", if_rlvr(preset, seed), preset.math_train, settings)


def math_then_if(preset: Preset, seed: int, beta: float) -> PolicyAt:
    """IF-RLVR from the Math endpoint, held to it by a reference penalty."""
    settings = replace(with_seed(preset.then_if, seed), kl_coef=beta)
    return kinds.rlvr(preset, f"Math -> IF, beta {beta:g}", math_rlvr(preset, seed), preset.if_train, settings)


def with_prior(preset: Preset, seed: int, name: str) -> tuple[PolicyAt, PolicyAt]:
    """Base after supervised texts of one opening, and after the IF-RLVR that follows."""
    start = base(preset)
    texts = kinds.measure(preset, start, preset.prior_source, 0)
    taught = kinds.prior(preset, f"{name} prior", start, texts, preset.priors[name], seed)
    settings = with_seed(preset.after_prior, seed)
    return taught, kinds.rlvr(
        preset, f"{name} prior, IF-RLVR", taught, preset.if_train, settings, preset.prior_snapshots
    )


def without_prior(preset: Preset, seed: int) -> PolicyAt:
    """Base after as many steps of IF-RLVR as the priors get."""
    settings = with_seed(preset.after_prior, seed)
    return kinds.rlvr(preset, "No prior, IF-RLVR", base(preset), preset.if_train, settings, preset.prior_snapshots)


def student(preset: Preset, seed: int, step: int | None) -> PolicyAt:
    """Base distilled from the converged IF teacher (None) or from its snapshot."""
    run = if_rlvr(preset, seed)
    teacher = run if step is None else kinds.snapshot(run, step, f"IF-RLVR step {step}")
    settings = replace(preset.opd if step is None else preset.scan, seed=seed)
    name = "OPD from IF-RLVR" if step is None else f"OPD from step {step}"
    return kinds.opd(preset, name, base(preset), teacher, preset.if_train, settings)


def joint_math(preset: Preset, seed: int) -> PolicyAt:
    """The math endpoint of the joint test: the main one, or a longer run of its own."""
    if preset.joint_math is None:
        return math_rlvr(preset, seed)
    settings = with_seed(preset.joint_math, seed)
    source = preset.joint_math_train or preset.math_train
    return kinds.rlvr(preset, "Math-RLVR, long", base(preset), source, settings)


def joint_if(preset: Preset, seed: int) -> PolicyAt:
    """The instruction endpoint of the joint test: the main one, or a longer run of its own."""
    if preset.joint_if is None:
        return if_rlvr(preset, seed)
    return kinds.rlvr(preset, "IF-RLVR, long", base(preset), preset.if_train, with_seed(preset.joint_if, seed))
