"""Models of one layer, and rollouts written down by hand, for tests of the update."""

import jax
import numpy as np

from vsr_jax.model.config import ModelConfig, parse_config
from vsr_jax.model.params import Params, init_params
from vsr_jax.sampling.types import STOP, Rollouts


def tiny_config(vocab: int, hidden: int = 8) -> ModelConfig:
    return parse_config(
        {
            "model_type": "llama",
            "vocab_size": vocab,
            "hidden_size": hidden,
            "intermediate_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 4,
            "max_position_embeddings": 64,
            "rms_norm_eps": 1e-12,
            "rope_theta": 100.0,
            "hidden_act": "silu",
        }
    )


def tiny_model(seed: int, vocab: int = 13, hidden: int = 8) -> tuple[ModelConfig, Params]:
    """Random weights, large enough that its distributions are far from flat."""
    config = tiny_config(vocab, hidden)
    return config, init_params(config, jax.random.key(seed), std=0.5)


def table_model(probabilities: np.ndarray) -> tuple[ModelConfig, Params]:
    """A bigram table as a transformer: after token i comes token j with `probabilities[i, j]`, whatever came before.

    The layer adds nothing, the embedding is one-hot, and the norm turns it into sqrt(V) times one-hot.
    """
    size = len(probabilities)
    config = tiny_config(size, hidden=size)
    params = init_params(config, jax.random.key(0))
    layers = {**params["layers"], "o": params["layers"]["o"] * 0, "down": params["layers"]["down"] * 0}
    logp = np.log(probabilities).astype(np.float32)
    head = logp.T / np.float32(size**0.5)
    return config, {**params, "layers": layers, "embed": np.eye(size, dtype=np.float32), "lm_head": head}


def rollouts_of(
    prompts: list[list[int]], responses: list[list[int]], *, width: int | None = None, forced: int = 0, seed: int = 0
) -> Rollouts:
    """The given responses, prompt-major, as if sampled; the first `forced` tokens of each as if forced."""
    rng = np.random.default_rng(seed)
    n, width = len(responses), width or max(map(len, responses))
    tokens, length = np.zeros((n, width), np.int32), np.array([len(r) for r in responses], np.int32)
    for row, response in zip(tokens, responses, strict=True):
        row[: len(response)] = response
    places = np.arange(width)
    sampled = (places < length[:, None]) & (places >= forced)
    logp = np.where(places < length[:, None], rng.uniform(-3, -0.5, (n, width)), 0).astype(np.float32)
    prompt_length = np.array([len(p) for p in prompts], np.int32)
    prompt_tokens = np.zeros((len(prompts), prompt_length.max()), np.int32)
    for row, prompt in zip(prompt_tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    group = n // len(prompts)
    return Rollouts(
        tokens=tokens,
        length=length,
        sampled=sampled,
        logp=logp,
        logp_behavior=np.where(sampled | (places >= length[:, None]), logp, -np.inf).astype(np.float32),
        finish_reason=np.full(n, STOP, np.int8),
        prompt_id=np.repeat(np.arange(len(prompts)), group).astype(np.int32),
        sample_id=np.tile(np.arange(group), len(prompts)).astype(np.int32),
        prompt_index=np.repeat(np.arange(len(prompts)), group).astype(np.int32),
        prompt_tokens=prompt_tokens,
        prompt_length=prompt_length,
    )
