"""How the Base policy of the micro study is made: drill, then the mixed corpus."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from vsr_jax.data import micro
from vsr_jax.model.checkpoint_io import save_model
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import init_params
from vsr_jax.training.checkpoint import write_json
from vsr_jax.training.settings import SftSettings
from vsr_jax.training.sft import Text, train_sft


@dataclass(frozen=True)
class PretrainSettings:
    """Hyper-parameters of the micro Base.

    Attributes:
      world: preset of the micro world.
      seed: of the initial weights and of the corpus.
      drill_steps, mixed_steps: optimizer steps of the two phases; the optimizer starts fresh in each.
      drill_rate, mixed_rate: learning rates; the second decays linearly over the last two thirds.
      rows, width: packed rows a step, and tokens a row.
    """

    world: str = "default"
    seed: int = 0
    drill_steps: int = 800
    mixed_steps: int = 1500
    drill_rate: float = 3e-3
    mixed_rate: float = 2e-3
    rows: int = 16
    width: int = 96


def micro_config() -> ModelConfig:
    """The micro policies: a Qwen3 of two layers, 275 thousand parameters."""
    size = len(micro.vocabulary())
    return ModelConfig(
        model_type="qwen3",
        vocab_size=size,
        num_tokens=size,
        hidden_size=96,
        intermediate_size=320,
        num_layers=2,
        num_heads=4,
        num_kv_heads=4,
        head_dim=24,
        rms_norm_eps=1e-6,
        rope_theta=1000.0,
        max_position=128,
        qkv_bias=False,
        o_bias=False,
        qk_norm=True,
        tie_word_embeddings=True,
    )


def _texts(settings: PretrainSettings, phase: Literal["drill", "mixed"]) -> Iterator[Text]:
    tokenizer = micro.build_tokenizer()
    end = micro.vocabulary().index(micro.EOS)
    for example in micro.corpus(micro.PRESETS[settings.world], settings.seed, phase):
        prompt = tokenizer.encode(f"{example.prompt} {micro.ASSISTANT}", add_special_tokens=False).ids
        response = tokenizer.encode(example.response, add_special_tokens=False).ids
        yield prompt, [*response, end] if example.ends else response


def pretrain(
    settings: PretrainSettings,
    out: Path,
    *,
    on_step: Callable[[str, int, int, Mapping[str, float]], None] | None = None,
) -> None:
    """Trains a Base policy and writes it as a Hugging Face directory, with `training.json` beside the weights.

    Args:
      out: directory to write.
      on_step: called with (phase, steps done, steps of the phase, metrics).
    """
    config = micro_config()
    micro.save_tokenizer(out)
    params = init_params(config, jax.random.key(settings.seed))
    final = {}
    phases: tuple[tuple[Literal["drill", "mixed"], int, float, float], ...] = (
        ("drill", settings.drill_steps, settings.drill_rate, 1.0),
        ("mixed", settings.mixed_steps, settings.mixed_rate, 1 / 3),
    )
    for phase, steps, rate, hold in phases:
        history: list[float] = []

        def record(
            step: int, line: Mapping[str, float], phase: str = phase, steps: int = steps, history=history
        ) -> None:
            history.append(line["loss"])
            if on_step is not None:
                on_step(phase, step, steps, line)

        sft = SftSettings(
            steps, settings.rows, settings.width, rate, hold, weight_decay=0.05, beta2=0.98, clip_norm=1.0
        )
        params = train_sft(config, params, _texts(settings, phase), sft, on_step=record)
        final[f"{phase}_loss_last_50_steps"] = round(float(np.mean(history[-50:])), 5)
    save_model(config, params, out)
    ids = micro.vocabulary().index
    stops = {"eos_token_id": ids(micro.EOS), "pad_token_id": ids(micro.PAD)}
    write_json(out / "generation_config.json", stops)
    write_json(out / "training.json", {"command": _command(settings), "settings": asdict(settings), "metrics": final})


def _command(settings: PretrainSettings) -> str:
    default = PretrainSettings()
    changed = [
        f"--{name.replace('_', '-')} {value}"
        for name, value in asdict(settings).items()
        if name != "seed" and value != getattr(default, name)
    ]
    return " ".join(["vsr micro pretrain --out DIR", f"--seed {settings.seed}", *changed])
