"""The programs of a study's stages with abstract arguments: what `vsr plan` compiles is what the study runs."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params, build, param_count, param_specs
from vsr_jax.model.transformer import unstack_layers
from vsr_jax.objectives.kl import kl
from vsr_jax.objectives.policy import grpo
from vsr_jax.objectives.types import TokenBatch
from vsr_jax.parallel.mesh import format_mesh
from vsr_jax.parallel.plan import Program, placed
from vsr_jax.parallel.rules import (
    SAMPLER_RULES,
    batch_shardings,
    cache_shardings,
    keep_placed,
    param_shardings,
    state_shardings,
)
from vsr_jax.sampling.device import TPU_OPTIONS, SlotData, decode_chunk, make_state, prefill
from vsr_jax.scoring import token_logprobs
from vsr_jax.training.batches import PackedBatch
from vsr_jax.training.step import adamw, init_state, make_update

STEPS = 32
"""Decode steps of one compiled chunk."""


def abstract_params(config: ModelConfig, dtype: Any) -> Params:
    """Shapes of the parameters."""
    return build((spec, jax.ShapeDtypeStruct(spec.shape, np.dtype(dtype))) for spec in param_specs(config))


def _shape(kind: str, *sizes: int) -> Any:
    return jax.ShapeDtypeStruct(sizes, np.dtype(kind))


def pass_flops(config: ModelConfig, rows: int, length: int) -> tuple[float, float]:
    """FLOPs of one forward pass over rows of a length: matrix products with weights, and causal attention."""
    matrices = param_count(config) - (0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size)
    attention = 2.0 * config.num_layers * config.num_heads * config.head_dim * length**2 * rows
    return 2.0 * matrices * rows * length, attention


def update_program(config: ModelConfig, mesh: Mesh, rows: int, length: int, micro: int | None = None) -> Program:
    """One full-parameter AdamW step of GRPO with a KL term, on `rows` packed rows; reference log-probs are given."""
    optimizer = adamw(1e-6)
    objective = grpo() + 0.001 * kl("k2")
    state = jax.eval_shape(lambda p: init_state(p, optimizer), abstract_params(config, "float32"))
    shardings = state_shardings(config, state, mesh)
    ints, floats = _shape("int32", rows, length), _shape("float32", rows, length)
    tokens = TokenBatch(ints, floats, floats, floats, floats, ints)
    batch = PackedBatch(ints, ints, ints, tokens, _shape("int32"))
    state, batch = placed(state, shardings), placed(batch, batch_shardings(batch, mesh))
    matrices, attention = pass_flops(config, rows, length)
    # Each layer's input is kept for the backward pass, which computes the rest of the layer again.
    kept = jax.ShapeDtypeStruct((micro or rows, config.num_layers, length, config.hidden_size), config.dtype)
    return Program(
        "update",
        keep_placed(make_update(config, objective, optimizer, micro=micro), shardings),
        (state, batch),
        mesh,
        {"parameters": state.params, "optimiser": state.opt_state},
        tokens=rows * length,
        # Forward, once more for the backward pass, and twice for gradients; the attention kernel computes its scores
        # again in its backward pass, which makes 2.5 forward passes.
        flops=4 * matrices + 4.5 * attention,
        trips=rows // (micro or rows),
        note=f"{rows} rows x {length} tokens, {micro or rows} at a time, mesh {format_mesh(dict(mesh.shape))}",
        within={"activations": placed(kept, batch_shardings(kept, mesh)), "gradients": state.params},
    )


def score_program(config: ModelConfig, mesh: Mesh, rows: int, length: int) -> Program:
    """Teacher-forced log-probabilities under frozen bfloat16 weights: a reference, a teacher, a localisation."""
    params = placed(abstract_params(config, "bfloat16"), param_shardings(config, mesh))
    tokens = _shape("int32", rows, length)
    tokens = placed(tokens, batch_shardings(tokens, mesh))
    return Program(
        "score",
        token_logprobs,
        (config, params, tokens),
        mesh,
        {"parameters": params},
        tokens=rows * length,
        flops=sum(pass_flops(config, rows, length)),
        note=f"{rows} rows x {length} tokens, mesh {format_mesh(dict(mesh.shape))}",
    )


def rollout_programs(
    config: ModelConfig, mesh: Mesh, lanes: int, group: int, prompt: int, response: int
) -> tuple[Program, Program]:
    """A chunk of decode steps with every slot at its full length, and the prefill of one prompt.

    Lanes of `group` slots hold two prompts each, as the sampler lays out a long queue.
    """
    params = jax.eval_shape(partial(unstack_layers, config), abstract_params(config, "bfloat16"))
    params = placed(params, state_shardings(config, params, mesh, SAMPLER_RULES))
    state = jax.eval_shape(lambda: make_state(config, lanes, 2, prompt, group, response))
    shardings = cache_shardings(config, state, mesh, SAMPLER_RULES)
    state = placed(state, shardings)
    slots = _abstract_slots(lanes, group)
    slots = placed(slots, batch_shardings(slots, mesh, SAMPLER_RULES))
    kinds: Mapping[str, Any] = {"parameters": params, "cache": state.cache}
    mesh_text = format_mesh(dict(mesh.shape))

    def decode(state: Any, params: Params, slots: SlotData) -> Any:
        return decode_chunk(config, params, state, slots)

    def fill(state: Any, params: Params, *rest: Any) -> Any:
        return prefill(config, params, state, *rest), jnp.int32(0)

    matrices, _ = pass_flops(config, lanes * group, 1)
    seen = 4.0 * config.num_layers * config.num_heads * config.head_dim * (2 * prompt + response) * lanes * group
    decoding = Program(
        "rollout decode",
        keep_placed(decode, shardings),
        (state, params, slots),
        mesh,
        kinds,
        tokens=lanes * group * STEPS,
        flops=(matrices + seen) * STEPS,
        trips=STEPS,
        note=f"{lanes * group} slots in {lanes} lanes, ({prompt} + {response}) tokens, mesh {mesh_text}",
        options=TPU_OPTIONS,
    )
    tokens, ints = _shape("int32", 1, prompt), _shape("int32", 1)
    arguments = placed((tokens, ints, ints, ints), batch_shardings((tokens, ints, ints, ints), mesh, SAMPLER_RULES))
    filling = Program(
        "rollout prefill",
        keep_placed(fill, shardings),
        (state, params, *arguments),
        mesh,
        kinds,
        tokens=prompt,
        # Each row shard runs the prompt, and the one that owns the lane keeps it.
        flops=sum(pass_flops(config, 1, prompt)) * mesh.shape["data"] * mesh.shape["fsdp"],
        note=f"1 prompt of {prompt} tokens, mesh {mesh_text}",
    )
    return decoding, filling


def _abstract_slots(lanes: int, group: int) -> SlotData:
    ints, floats = _shape("int32", lanes, group), _shape("float32", lanes, group)
    return SlotData(
        prompt=ints,
        prompt_length=ints,
        length=ints,
        folded=ints,
        limit=ints,
        live=_shape("bool", lanes, group),
        keys=jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (lanes, group))),
        forced=_shape("int32", lanes, group, STEPS),
        temperature=floats,
        top_p=floats,
        top_k=ints,
        stop_ids=_shape("int32", 8),
    )
