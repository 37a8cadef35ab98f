"""Run as a program on 8 virtual devices: compares every mesh with one device and prints the differences as JSON."""

import contextlib
import json
import os
import sys
from dataclasses import replace

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vsr_jax.model.config import parse_config
from vsr_jax.model.params import init_params
from vsr_jax.model.transformer import unstack_layers
from vsr_jax.objectives.advantages import group_advantages
from vsr_jax.objectives.policy import grpo
from vsr_jax.parallel import rollout
from vsr_jax.parallel.mesh import make_mesh, parse_mesh
from vsr_jax.parallel.rules import (
    SAMPLER_RULES,
    batch_shardings,
    keep_placed,
    param_shardings,
    state_shardings,
)
from vsr_jax.sampling.device import decode_chunk, prefill
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import SamplingParams
from vsr_jax.scoring import token_logprobs
from vsr_jax.training.batches import grouped_batch
from vsr_jax.training.step import adamw, init_state, make_update

CONFIG = parse_config(
    {
        "model_type": "qwen3",
        "vocab_size": 80,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
    }
)
PROMPTS = [[1, 2, 3], [4, 5], [6], [7, 8, 9, 10], [11, 12], [13], [14, 15, 16], [17]]
REWARDS = np.array([[1, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 1], [0, 1, 1, 1]] * 2)
IN_PARTS = ("fsdp=8", "fsdp=2,sequence=2,tensor=2")
"""Meshes that also take 4 of the 8 rows at a time: with 8 row shards a part has fewer rows than shards."""
REQUEST = SamplingParams(n=4, max_tokens=6, stop_ids=(3, 4, 5, 6, 7))


def difference(a, b) -> float:
    """Euclidean distance of two trees, relative to the second."""
    leaves = lambda tree: [np.asarray(x, np.float64) for x in jax.tree.leaves(tree)]  # noqa: E731
    top = sum(((x - y) ** 2).sum() for x, y in zip(leaves(a), leaves(b), strict=True))
    return float((top / sum((y**2).sum() for y in leaves(b))) ** 0.5)


def steps(params, batch, mesh=None, micro=None):
    """Two clipped AdamW updates: the parameters, and the first update's loss, gradient norm and clipped gradient."""
    optimizer = adamw(1e-2, beta1=0.9, clip=0.01)
    update, state = make_update(CONFIG, grpo(), optimizer, micro=micro), init_state(params, optimizer)
    if mesh is not None:
        shardings = state_shardings(CONFIG, state, mesh)
        update, state = keep_placed(update, shardings), jax.device_put(state, shardings)
    with jax.set_mesh(mesh) if mesh is not None else contextlib.nullcontext():
        state, first = update(state, batch)
        moment = jax.device_get(optax.tree.get(state.opt_state, "mu"))
        state, _ = update(state, batch)
    assert update._cache_size() == 1
    return {
        "loss": first["loss"],
        "grad_norm": first["grad_norm"],
        "gradient": jax.tree.map(lambda m: m / 0.1, moment),
        "updated": jax.device_get(state.params),
    }


def clipped_pair() -> list[float]:
    """The gradient (3, 4), one number on each of two devices, clipped at norm 1."""
    split = NamedSharding(make_mesh({"fsdp": 2}, jax.devices()[:2]), PartitionSpec("fsdp"))
    gradient = {"w": jax.device_put(np.array([3.0, 4.0], np.float32), split)}
    clip = optax.clip_by_global_norm(1.0)
    return np.asarray(jax.jit(lambda g: clip.update(g, clip.init(g))[0])(gradient)["w"]).tolist()


def moved_to_sampler(params, whole, own) -> bool:
    """Whether weights reach the sampler's mesh as bfloat16: right, on the devices, by one program compiled once."""
    config = replace(CONFIG, dtype="bfloat16")
    before = rollout._weights._cache_size()
    with jax.transfer_guard("disallow"):
        for _ in range(2):
            moved = rollout.to_rollout(config, params, whole, own)
    assert rollout._weights._cache_size() <= before + 1
    kept = unstack_layers(config, jax.device_get(params))
    shardings = state_shardings(config, kept, own, SAMPLER_RULES)
    return all(
        x.sharding.is_equivalent_to(s, x.ndim) and x.dtype == "bfloat16" and (np.asarray(x) == np.asarray(y)).all()
        for x, s, y in zip(*map(jax.tree.leaves, (moved, shardings, kept)), strict=True)
    )


def sampled(params, whole, own):
    """Rollouts on the sampler's mesh, whose programs are compiled once however often they run."""
    programs = decode_chunk, prefill
    weights = rollout.to_rollout(CONFIG, params, whole, own)
    before = [program._cache_size() for program in programs]
    found = sample(CONFIG, weights, PROMPTS, REQUEST, seed=1, chunk=2)
    # None where an earlier mesh had the same sampler.
    assert all(program._cache_size() <= n + 1 for program, n in zip(programs, before, strict=True))
    return found


def main() -> None:
    params = init_params(CONFIG, jax.random.key(0), std=0.3)
    rollouts = sample(CONFIG, params, PROMPTS, REQUEST, seed=1)
    batch = grouped_batch(rollouts, group_advantages(REWARDS))
    packed = np.array([p[:1] * 8 for p in PROMPTS])
    scores = token_logprobs(CONFIG, params, packed)
    alone = steps(params, batch)
    print(json.dumps({"clipped_pair": clipped_pair()}), flush=True)
    for text in sys.argv[1:]:
        sizes = parse_mesh(text)
        count = int(np.prod(list(sizes.values())))
        mesh = make_mesh(sizes, jax.devices()[:count])
        placed = jax.device_put(params, param_shardings(CONFIG, mesh))
        rows = jax.device_put(batch, batch_shardings(batch, mesh))
        result = steps(placed, rows, mesh)
        parts = steps(placed, rows, mesh, micro=4) if text in IN_PARTS else result
        # Rollouts on another mesh over the same devices, and with these in another order.
        whole, own = rollout.rollout_meshes(CONFIG, mesh, {"tensor": 2, "data": -1})
        again = sampled(placed, whole, own)
        turned = Mesh(whole.devices[::-1], whole.axis_names)
        reordered = sample(CONFIG, rollout.to_rollout(CONFIG, placed, turned, turned), PROMPTS, REQUEST, seed=1)
        with jax.set_mesh(mesh):
            rows = jax.device_put(packed, batch_shardings(packed, mesh, length=True))
            seen = jax.device_get(token_logprobs(CONFIG, placed, rows))
        biggest = max(jax.tree.leaves(placed), key=lambda x: x.size)
        print(
            json.dumps(
                {
                    "mesh": text,
                    **{name: difference(result[name], alone[name]) for name in alone},
                    "micro": difference(parts["updated"], alone["updated"]),
                    "norm_of_clipped": float(optax.tree.norm(result["gradient"])),
                    "scores": difference(seen, scores),
                    "moved": moved_to_sampler(placed, whole, own),
                    "tokens": all(
                        bool((x.tokens == rollouts.tokens).all() and (x.length == rollouts.length).all())
                        for x in (again, reordered)
                    ),
                    "logp": difference(again.logp, rollouts.logp),
                    "local_share": biggest.addressable_shards[0].data.size / biggest.size,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
