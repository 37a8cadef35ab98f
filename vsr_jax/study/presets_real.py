"""The study on real models: Qwen3-8B-Base, Qwen2.5-Math-7B, and a small form for one accelerator.

Every value has its source beside it: [P] the paper, [R] its authors' repository, [S] a close source, [I] inferred here.
What the paper leaves open is listed in `open_choices`, which the report prints.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vsr_jax.data.benchmarks import BENCHMARKS
from vsr_jax.errors import UserError
from vsr_jax.study.grid import DECODINGS, Decoding
from vsr_jax.study.preset import Bench, DataFile, Preset, Prior, Source, data_file
from vsr_jax.training.settings import OpdSettings, RlvrSettings, SftSettings

NAMES = ("qwen3-8b", "qwen2.5-math-7b", "small")
"""Studies of real models."""

_RUN = RlvrSettings(
    prompts=512,  # [S] the DAPO recipe; the paper does not say
    mini_prompts=32,  # [S] DAPO
    samples=16,  # [P], [R]
    max_tokens=8192,  # [R]; prompts have 2,048 tokens at most there
    temperature=1.0,  # [R]
    top_p=0.7,  # [R]; 1.0 would be on-policy
    advantage="grpo",  # [P] a GRPO in the style of DAPO
    std="population",  # [I]
    loss="grpo",  # [P]
    reducer="token_mean",  # [S] DAPO
    clip_low=0.2,  # [S] DAPO
    clip_high=0.28,  # [S] DAPO
    kl_coef=0.0,  # [S] DAPO
    kl_estimator="k2",  # [I] in the loss it has the gradient of the true KL, which k1 and k3 have not
    learning_rate=1e-6,  # [S] DAPO; Dr.GRPO and OLMo 3 RL-Zero have the same
    warmup=160,  # [S] DAPO: 10 steps, each of 512 / 32 updates
    weight_decay=0.1,  # [S] DAPO
    clip_norm=1.0,  # [S] DAPO
    micro_prompts=1,  # memory only
    checkpoint_every=10,  # [I]
)
_MATH = replace(
    _RUN,
    overlong_buffer=4096,  # [S] DAPO
    extract="answer_line",  # [R] the last `Answer:` line
)
_INSTRUCTIONS = replace(
    _RUN,
    reward="all",  # [P]; `fraction` is what the authors' verifier returns [R]
    learning_rate=5e-7,  # [S] IF-RLVR
)

# Framings. A configuration of the authors says that training used the chat template [R]; probes, interventions and the
# texts of the priors have the bare framing [R]. That of support measurements is not stated: chat, as in training.
_TRAIN_MATH = "chat+dapo_math"  # [R]
_PLAIN = "chat"  # [R] instruction prompts pass unchanged
_BOXED = "chat+boxed"  # [R] asks for no style of reasoning
_AIME = "chat+aime_answer_line"  # [R]
_PROBE_AIME = "bare+aime_answer_line"  # [R]
_PROBE = "bare"  # [R]

_SUPPORT = DECODINGS["support"]  # [R] 32 samples, temperature 1, top-p 0.7, 8,192 tokens, seed 1234


@dataclass(frozen=True)
class _Model:
    """What differs between the two large models."""

    hub: str
    about: str
    math_steps: int
    if_steps: int
    trajectory: tuple[int, ...]
    max_position: int | None = None
    choices: tuple[str, ...] = ()


_MODELS: Mapping[str, _Model] = {
    "qwen3-8b": _Model(
        "Qwen/Qwen3-8B-Base",
        "Qwen3-8B-Base.",
        math_steps=220,  # [R]
        if_steps=100,  # [R]
        trajectory=(20, 40, 60, 80),  # [P] the teachers' snapshots; the path's own steps are not stated
    ),
    "qwen2.5-math-7b": _Model(
        "Qwen/Qwen2.5-Math-7B",
        "Qwen2.5-Math-7B.",
        math_steps=460,  # [R] 460 in one place, 480 in another
        if_steps=380,  # [R]
        trajectory=(20, 40, 60, 80, 160, 240, 320),  # [I]
        max_position=32768,  # [S] the model's own 4,096 tokens do not hold the responses
        choices=(
            "The Math endpoint is step 460; the authors' files name 480 too.",
            "The context is set to 32,768 tokens, beyond the 4,096 that the model was trained on.",
        ),
    ),
}

_OPEN = (
    "Learning rates, batch, clipping, warm-up and weight decay of RLVR are not published: those of DAPO stand in, with "
    "the 5e-7 of IF-RLVR for instructions.",
    "Rollouts have top-p 0.7, as the authors'. The policy that is scored has top-p 1.",
    "Training and support measurements have the chat template; probes and interventions the bare framing.",
    "A math reward is 0 or 1. The authors' +1 and -1 gives the same group-normalised advantages.",
    "IF-RLVR pays for all constraints together. The authors' verifier pays the share that holds.",
    "The place and estimator of the reference penalty are not stated: k2 in the loss.",
    "Math to IF has as many steps as IF-RLVR from Base.",
    "Priors: a batch is 8 or 32 packed rows of 2,048 tokens and may hold more texts; epochs are counted as if a row "
    "held one. The texts come from 256 prompts of MATH train; what follows is measured on MATH-500-128, in the "
    "paper on AIME24.",
    "Distillation draws its prompts from IFTrain; the paper does not say which.",
    "The Math endpoint of the joint test trains on MATH; the authors' on the DAPO set, which has no loader here.",
    "MathIF has all 420 and ReasonIF all 300 prompts; the paper's 290 of each are not published.",
    "The stratified prompts of IFEval and IFBench are drawn here; the paper's are not published.",
    "Interventions are on both years of AIME.",
)


def real_preset(name: str, *, model: str = "", data: Path | None = None, mesh: str | None = None) -> Preset:
    """A study of a real model.

    Args:
      name: one of `NAMES`.
      model: hub id or directory in place of the preset's own.
      mesh: to train on, in place of the preset's own; see `Preset`.
      data: folder of JSONL files, see `data_files`; None reads every benchmark from the hub.

    Raises:
      UserError: unknown name, or a folder without any known file.
    """
    if name not in NAMES:
        raise UserError(f"study {name!r}: unknown; choose one of {', '.join(NAMES)}")
    preset = _small() if name == "small" else _large(name, _MODELS[name])
    if model:
        preset = replace(preset, model=model, about=f"Model: {model}. Settings: {name}.")
    if mesh is not None:
        preset = replace(preset, mesh=mesh)
    return replace(preset, files=data_files(data)) if data else preset


def _large(name: str, model: _Model) -> Preset:
    support = _SUPPORT
    aime = tuple(Bench(f"aime{year}", f"AIME{year}", _AIME, support) for year in (24, 25))
    ifeval = Bench("ifeval", "IFEval", _PLAIN, support)
    ifbench = Bench("ifbench", "IFBench", _PLAIN, support)
    math500 = Bench("math500_128", "MATH-500-128", _BOXED, DECODINGS["math500_plan"])  # [R] 16 samples, 0.7 / 0.95
    probes = tuple(replace(bench, framing=_PROBE_AIME) for bench in aime)
    few = Decoding(8, 8192, 1.0, 0.7, 1234)  # [R] 100 stratified prompts x 8
    opd = OpdSettings(
        steps=50,  # [R]
        prompts=64,  # [R]
        samples=4,  # [R]
        max_tokens=4096,  # [R]
        loss="top_k",  # [R]
        top_k=16,  # [R]
        learning_rate=1e-6,  # [R]
        micro_prompts=1,  # memory only
    )
    soft = SftSettings(
        steps=62,  # [P] 10 epochs of 50 texts in eights
        rows=8,  # [P]
        width=2048,  # [I]
        learning_rate=2e-6,  # [P]
        remat=True,  # memory only
    )
    hard = replace(soft, steps=31, rows=32, learning_rate=1e-5)  # [P] 20 epochs in batches of 32
    return Preset(
        name=name,
        about=model.about,
        model=model.hub,
        dtype="bfloat16",  # [I]
        mesh="fsdp=-1",  # memory only
        max_position=model.max_position,
        workers=8,  # [I] a verifier may hang on a response of a real model
        math_train=Source("math_train", _TRAIN_MATH),  # [R] 7,500 prompts
        if_train=Source("iftrain", _PLAIN),  # [R]
        math=replace(_MATH, steps=model.math_steps),
        instructions=replace(_INSTRUCTIONS, steps=model.if_steps),
        trajectory=model.trajectory,
        then_math=replace(_MATH, steps=20),  # [P], [R]
        then_if=replace(_INSTRUCTIONS, steps=model.if_steps),  # [I]
        betas=(0.0, 0.04, 0.08, 0.12),  # [P]
        priors={
            "Soft DRI": Prior("DRI", soft),  # [P]
            "Hard DRI": Prior("DRI", hard),  # [P]
            "DAI": Prior("DAI", soft),  # [P] a control; its strength is not stated
            "Random": Prior("", soft),  # [P] a control; its strength is not stated
        },
        prior_texts=50,  # [P]
        prior_source=Bench(
            "math_train", "MATH train", "bare+dapo_math", Decoding(16, 8192, 1.0, 0.7, 1234), limit=256
        ),  # [I]
        after_prior=replace(_INSTRUCTIONS, steps=100),  # [P]
        prior_snapshots=(70,),  # [P]
        opd=opd,
        scan=replace(opd, steps=100),  # [R]
        teacher_steps=(20, 40, 60, 80),  # [P]
        if_support=(ifeval, ifbench),  # [P]
        math_support=aime,  # [P]
        math_buckets=math500,  # [R]
        if_small=ifeval,  # [I]
        localize=(
            *probes,  # [R] 32 samples a prompt
            replace(ifeval, framing=_PROBE, decoding=few, limit=100, spread=True),  # [R]
            replace(ifbench, framing=_PROBE, decoding=few, limit=100, spread=True),  # [R]
        ),
        localize_prompts=100,  # [R]; AIME has 30
        localize_samples=32,  # [R]; the instruction prompts have 8
        positions="recipe",  # [R]
        intervene=probes,  # [P] AIME; 32 samples, temperature 1, top-p 0.7 [R]
        joint=(
            Bench("mathif", "MathIF", _PLAIN, DECODINGS["joint"]),  # [R] 16 samples, 0.7 / 0.95, 4,096 tokens
            Bench("reasonif", "ReasonIF", _PLAIN, DECODINGS["joint"]),
        ),
        joint_math=replace(_MATH, steps=720, samples=8),  # [R]
        joint_if=replace(_INSTRUCTIONS, steps=720),  # [R]
        open_choices=(*_OPEN, *model.choices),
    )


def _small() -> Preset:
    """The study of Qwen3-8B-Base with shorter lists, for a model of 0.5 to 1.7 billion parameters.

    Every number that differs is [I]: chosen so that one accelerator can do it. A small model solves hardly any AIME
    problem, so MATH-500-128 stands where AIME does.
    """
    p = _large("small", _MODELS["qwen3-8b"])
    short = Decoding(16, 1024, 1.0, 0.7, 1234)
    batch = {"prompts": 32, "mini_prompts": 0, "samples": 8, "max_tokens": 1024}

    def run(settings: RlvrSettings, steps: int) -> RlvrSettings:
        buffer = 256 if settings.overlong_buffer else 0
        return replace(settings, **batch, steps=steps, overlong_buffer=buffer, warmup=10)

    def bench(of: Bench, **changes) -> Bench:
        return replace(of, decoding=short, **changes)

    ifeval, ifbench = (bench(b, limit=100, spread=True) for b in p.if_support)
    math = bench(p.math_buckets)
    probe = replace(math, framing="bare+boxed")
    opd = replace(p.opd, prompts=16, max_tokens=1024)
    return replace(
        p,
        name="small",
        about="A small model on one accelerator, with shorter lists than the paper's.",
        model="Qwen/Qwen2.5-0.5B",
        mesh="",
        slots=128,
        math=run(p.math, 100),
        instructions=run(p.instructions, 100),
        trajectory=(20, 40, 60, 80),
        then_math=run(p.then_math, 20),
        then_if=run(p.then_if, 50),
        betas=(0.0, 0.12),
        priors={name: p.priors[name] for name in ("Soft DRI", "DAI")},
        prior_source=replace(p.prior_source, decoding=replace(short, samples=8)),
        after_prior=run(p.after_prior, 50),
        prior_snapshots=(25,),
        opd=opd,
        scan=replace(opd, steps=50),
        teacher_steps=(20, 80),
        if_support=(ifeval, ifbench),
        math_support=(math,),
        math_buckets=math,
        if_small=ifeval,
        localize=(probe, replace(ifeval, framing=_PROBE)),
        localize_prompts=64,
        localize_samples=4,
        intervene=(probe,),
        intervene_prompts=32,
        joint=tuple(bench(b, limit=100, spread=True) for b in p.joint),
        joint_math=None,
        joint_if=None,
        open_choices=(
            *_OPEN[:8],
            "Batches, lengths, steps and lists are shorter than the paper's, and MATH-500-128 stands where AIME does.",
            "The joint test takes the main endpoints.",
        ),
    )


# Names that a data folder may use for a benchmark, those of the public files beside the plain one.
_FILES: Mapping[str, tuple[str, ...]] = {
    "math_train": ("math_train_7500.jsonl",),
    "math500": ("math500_test.jsonl",),
    "math500_128": ("math500.jsonl", "math500_test.jsonl"),
    "gsm8k": ("gsm8k/test.jsonl",),
    "ifeval": ("ifeval/input_data.jsonl",),
    "ifbench": ("IFBench_test.jsonl",),
}


def data_files(folder: Path) -> dict[str, DataFile]:
    """The benchmarks that a folder holds, directly or one folder down, by name.

    A benchmark's file is NAME.jsonl, or as its publisher names it: see `docs/study.md`. What the folder lacks is read
    from the hub.

    Raises:
      UserError: no such folder, no known file in it, or two files of one benchmark.
    """
    if not folder.is_dir():
        raise UserError(f"--data {folder}: no such folder; give the folder of the JSONL files")
    files = sorted((*folder.glob("*.jsonl"), *folder.glob("*/*.jsonl")))
    found: dict[str, DataFile] = {}
    for name in BENCHMARKS:
        known = (f"{name}.jsonl", *_FILES.get(name, ()))
        held = [file for file in files if any(file.match(pattern) for pattern in known)]
        if len(held) > 1:
            raise UserError(f"--data {folder}: {held[0]} and {held[1]} are both {name}; keep one")
        if held:
            found[name] = data_file(held[0])
    if not found:
        raise UserError(f"--data {folder}: no known file; name them {', '.join(f'{n}.jsonl' for n in BENCHMARKS)}")
    return found


def benchmarks_of(preset: Preset) -> list[str]:
    """Every benchmark that a preset trains or measures on, each once."""
    sources = [preset.math_train, preset.if_train, *filter(None, [preset.joint_math_train])]
    benches = [
        *preset.math_support,
        *preset.if_support,
        preset.math_buckets,
        preset.if_small,
        preset.prior_source,
        *preset.localize,
        *preset.intervene,
        *preset.joint,
    ]
    return list(dict.fromkeys(item.benchmark for item in (*sources, *benches)))
