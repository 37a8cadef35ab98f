"""The real-model study cut down to minutes: the same stages and data, a random Qwen3 of two layers, two steps each."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import jax

from vsr_jax.model.checkpoint_io import save_model
from vsr_jax.model.config import parse_config
from vsr_jax.model.params import init_params
from vsr_jax.model.presets import preset as published
from vsr_jax.study.preset import Preset, data_file
from vsr_jax.study.presets_real import real_preset


def random_qwen(directory: Path, tokenizer: Path) -> Path:
    """A model directory with the real tokenizer and random weights: Qwen3-8B-Base but for its sizes."""
    raw = {**published("qwen3-8b-base"), "tie_word_embeddings": True}
    raw |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    raw |= {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = parse_config(raw)
    save_model(config, init_params(config, jax.random.key(0)), directory)
    shutil.copyfile(tokenizer / "tokenizer_config.json", directory / "tokenizer_config.json")
    with gzip.open(tokenizer / "tokenizer.json.gz") as stream:
        (directory / "tokenizer.json").write_bytes(stream.read())
    return directory


def tiny_qwen_preset(model: Path, data: Path) -> Preset:
    """`qwen3-8b` with two training steps of 2 x 2 responses of 8 tokens, and two prompts a benchmark.

    Without priors: they are trained on correct responses, and random weights give none.
    """
    p = real_preset("qwen3-8b", model=str(model), data=data)

    def short(settings, steps: int = 2):
        buffer = {"overlong_buffer": 4} if getattr(settings, "overlong_buffer", 0) else {}
        return replace(settings, steps=steps, prompts=2, mini_prompts=1, samples=2, max_tokens=8, **buffer)

    def few(bench):
        samples = 2 if bench.decoding.samples > 8 else 1
        return replace(bench, limit=2, decoding=replace(bench.decoding, samples=samples, max_tokens=8))

    return replace(
        p,
        files={**p.files, "iftrain": data_file(data / "iftrain" / "synthetic_iftrain_format.jsonl")},
        dtype="float32",
        slots=8,
        workers=0,
        math=short(p.math),
        instructions=short(p.instructions),
        then_math=short(p.then_math),
        then_if=short(p.then_if),
        after_prior=short(p.after_prior),
        joint_math=short(p.math),
        joint_if=short(p.instructions),
        opd=replace(short(p.opd), mini_prompts=0),
        scan=replace(short(p.scan), mini_prompts=0),
        betas=(0.0, 0.12),
        trajectory=(1,),
        teacher_steps=(1,),
        priors={},
        prior_snapshots=(1,),
        if_support=tuple(map(few, p.if_support)),
        math_support=tuple(map(few, p.math_support)),
        math_buckets=few(p.math_buckets),
        if_small=few(p.if_small),
        localize=tuple(map(few, p.localize)),
        intervene=tuple(map(few, p.intervene[:1])),
        joint=tuple(map(few, p.joint)),
        localize_prompts=2,
        sweep=(1, 4),
    )
