"""Makes four tiny random checkpoints and what the reference implementation says about them.

Needs torch and transformers, which nothing else in this repository does:

    pip install "torch>=2.6" "transformers>=5,<6" safetensors numpy
    python tests/goldens/make_goldens.py

Weights come from a seeded numpy generator, so a second run writes the same checkpoints byte for byte; the recorded
figures may move in the last float32 digits with another torch build. The reference is the model class of the
`transformers` library with eager attention in float32.

Each checkpoint is a Hugging Face directory `tests/goldens/<name>/`; beside it lies `<name>.npz`:

    tokens        int32[B, T]           right-padded rows; the pad id also occurs inside rows
    length        int32[B]              tokens of each row that are real
    hidden        float32[L + 1, B, T, D]  after the embedding, then after each layer (before the final norm)
    final         float32[B, T, D]      after the final norm
    log_probs     float32[B, T, V]      log-softmax of the logits at each position
    prompts       int32[P, S]           right-padded prompts of the greedy continuations
    prompt_length int32[P]
    greedy        int32[P, 16]          greedy continuation of each prompt, end-of-sequence ignored
    greedy_margin float32[P, 16]        log-prob of the first choice minus the second
    log_probs_yarn, yarn_rope_scaling   (qwen2 only) log_probs again with this JSON as the config's `rope_scaling`

Positions at or beyond `length` hold zeros.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
GREEDY_TOKENS = 16
# Greedy continuations are compared token by token, so a near-tie would test rounding and not the model.
SMALLEST_MARGIN = 1e-2

COMMON = {
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": True,
}

# Each differs from the others in what a loader could silently get wrong: bias, head size, tying, rotary base, epsilon,
# sharding, stored dtype, and the old (`rope_theta`, `torch_dtype`) or new (`rope_parameters`, `dtype`) config fields.
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": 88,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "sliding_window": 32,
        "max_window_layers": 3,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    },
    "qwen3_tied": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 80,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "tie_word_embeddings": True,
        "dtype": "float32",
    },
    "qwen3_untied": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 72,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 16,
        "attention_bias": False,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    },
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 96,
        "hidden_size": 36,
        "intermediate_size": 44,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    },
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
SHARDED = "qwen3_untied"
# Chosen among 20 to 39 for varied greedy continuations without near-ties.
SEEDS = {"qwen2": 35, "qwen3_tied": 30, "qwen3_untied": 35, "llama": 23}


def random_weights(config: dict[str, Any], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights in checkpoint names, scaled so that attention is far from uniform and no norm or bias is trivial."""
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim

    def matrix(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    def scale(size: int) -> np.ndarray:
        return rng.uniform(0.5, 1.5, size).astype(np.float32)

    # Small, so that a tied head does not just repeat the last token.
    embedding_scale = 0.15 if config["tie_word_embeddings"] else 0.5
    weights = {"model.embed_tokens.weight": (embedding_scale * rng.standard_normal((vocab, hidden))).astype(np.float32)}
    for layer in range(config["num_hidden_layers"]):
        block = {
            "input_layernorm.weight": scale(hidden),
            "self_attn.q_proj.weight": matrix(queries, hidden, 1.5),
            "self_attn.k_proj.weight": matrix(keys, hidden, 1.5),
            "self_attn.v_proj.weight": matrix(keys, hidden),
            "self_attn.o_proj.weight": matrix(hidden, queries),
            "post_attention_layernorm.weight": scale(hidden),
            "mlp.gate_proj.weight": matrix(inner, hidden),
            "mlp.up_proj.weight": matrix(inner, hidden),
            "mlp.down_proj.weight": matrix(hidden, inner),
        }
        if config["model_type"] == "qwen2":
            for name, size in (("q", queries), ("k", keys), ("v", keys)):
                block[f"self_attn.{name}_proj.bias"] = (0.5 * rng.standard_normal(size)).astype(np.float32)
        if config["model_type"] == "qwen3":
            block["self_attn.q_norm.weight"] = scale(head_dim)
            block["self_attn.k_norm.weight"] = scale(head_dim)
        weights |= {f"model.layers.{layer}.{name}": value for name, value in block.items()}
    weights["model.norm.weight"] = scale(hidden)
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(vocab, hidden, 2.0)
    return weights


def write_checkpoint(directory: Path, config: dict[str, Any], arrays: dict[str, np.ndarray], sharded: bool) -> None:
    """Writes config.json, generation_config.json and one safetensors file, or two with their index."""
    dtype = getattr(torch, config.get("torch_dtype") or config["dtype"])
    weights = {name: torch.from_numpy(array).to(dtype) for name, array in arrays.items()}
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    generation = {"bos_token_id": config["bos_token_id"], "eos_token_id": [config["eos_token_id"], 3]}
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")
    if not sharded:
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
        return
    # Cut in the middle of a layer, as real shards are.
    names = list(weights)
    parts = [names[: len(names) // 2], names[len(names) // 2 :]]
    weight_map = {}
    for number, part in enumerate(parts, start=1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        save_file({name: weights[name] for name in part}, directory / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(w.nbytes for w in weights.values())}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def load_reference(directory: Path) -> torch.nn.Module:
    """The reference model in float32 with eager attention."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def batch(rng: np.random.Generator, vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """Right-padded rows of lengths 1 to 13. The pad id is a word of the rows too, so no mask can come from it."""
    length = np.array([13, 1, 6, 9], np.int32)
    tokens = rng.integers(4, vocab, (len(length), int(length.max()))).astype(np.int32)
    pad = tokens[0, 2]
    tokens[2, 1] = pad
    for row, n in enumerate(length):
        tokens[row, n:] = pad
    return tokens, length


@torch.no_grad()
def forward(model: Any, tokens: np.ndarray, length: np.ndarray) -> dict[str, np.ndarray]:
    """Hidden states at every stage and log-probs of the whole vocabulary, zero in the padding."""
    stages: list[np.ndarray] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        stages.append((output[0] if isinstance(output, tuple) else output).numpy().copy())

    modules = [model.model.embed_tokens, *model.model.layers, model.model.norm]
    hooks = [module.register_forward_hook(keep) for module in modules]
    mask = np.arange(tokens.shape[1]) < length[:, None]
    logits = model(input_ids=torch.tensor(tokens).long(), attention_mask=torch.tensor(mask).long()).logits
    for hook in hooks:
        hook.remove()
    log_probs = torch.log_softmax(logits.float(), -1).numpy()
    return {
        "hidden": np.stack(stages[:-1]) * mask[None, :, :, None],
        "final": stages[-1] * mask[:, :, None],
        "log_probs": log_probs * mask[:, :, None],
    }


@torch.no_grad()
def greedy(model: Any, prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Continuation ids and margins, recomputing the whole sequence each step: no cache to be wrong about."""
    ids, margins = torch.tensor(prompt)[None].long(), []
    for _ in range(GREEDY_TOKENS):
        best = torch.log_softmax(model(input_ids=ids).logits[0, -1].float(), -1).topk(2)
        margins.append(float(best.values[0] - best.values[1]))
        ids = torch.cat([ids, best.indices[None, :1]], dim=1)
    return ids[0, len(prompt) :].numpy().astype(np.int32), np.array(margins, np.float32)


def yarn_log_probs(directory: Path, config: dict[str, Any], tokens: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Log-probs of the same weights under a YaRN-scaled config."""
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / "model"
        shutil.copytree(directory, copy)
        (copy / "config.json").write_text(json.dumps({**config, "rope_scaling": YARN}))
        return forward(load_reference(copy), tokens, length)["log_probs"]


def main() -> None:
    """Writes every checkpoint and its figures beside this file."""
    torch.set_num_threads(1)
    for name, architecture in CONFIGS.items():
        rng = np.random.default_rng(SEEDS[name])
        config = {**COMMON, **architecture}
        directory = HERE / name
        write_checkpoint(directory, config, random_weights(config, rng), sharded=name == SHARDED)

        model = load_reference(directory)
        tokens, length = batch(rng, config["vocab_size"])
        figures = {"tokens": tokens, "length": length, **forward(model, tokens, length)}

        prompt_length = np.array([1, 3, 8, 11], np.int32)
        prompts = np.zeros((len(prompt_length), int(prompt_length.max())), np.int32)
        for row, n in enumerate(prompt_length):
            prompts[row, :n] = rng.integers(4, config["vocab_size"], n)
        runs = [greedy(model, prompts[row, :n]) for row, n in enumerate(prompt_length)]
        figures |= {"prompts": prompts, "prompt_length": prompt_length}
        figures |= {"greedy": np.stack([ids for ids, _ in runs]), "greedy_margin": np.stack([m for _, m in runs])}
        margin = figures["greedy_margin"].min()
        if margin < SMALLEST_MARGIN:
            raise SystemExit(f"{name}: greedy margin {margin:.1e} is a near-tie; choose another seed")

        if name == "qwen2":
            figures["log_probs_yarn"] = yarn_log_probs(directory, config, tokens, length)
            figures["yarn_rope_scaling"] = np.array(json.dumps(YARN))
        np.savez_compressed(HERE / f"{name}.npz", **figures)
        size = sum(file.stat().st_size for file in [*directory.iterdir(), HERE / f"{name}.npz"])
        print(f"{name}: {size / 1e3:.0f} kB, smallest greedy margin {margin:.3f}")


if __name__ == "__main__":
    main()
