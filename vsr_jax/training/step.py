"""One update: micro-batches summed, one clipped optimizer step, nothing applied when a gradient is not finite."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import lax

from vsr_jax.model import transformer
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.objectives.statistics import entropy
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.scoring import chunked
from vsr_jax.training.batches import GroupedBatch, PackedBatch

Batch: TypeAlias = GroupedBatch | PackedBatch
Metrics: TypeAlias = dict[str, jax.Array]


@struct.dataclass
class TrainState:
    """Everything an update changes.

    Attributes:
      params: float32 master weights.
      opt_state: the optimizer's.
      step: int32, updates asked for so far.
      skipped: int32, updates left out because a gradient was not finite.
    """

    params: Params
    opt_state: Any
    step: jax.Array
    skipped: jax.Array


def init_state(params: Params, optimizer: optax.GradientTransformation) -> TrainState:
    """A state at step 0. The parameters are copied, since updates donate the state."""
    params = jax.tree.map(lambda x: jnp.array(x, jnp.float32, copy=True), params)
    return TrainState(params, optimizer.init(params), jnp.int32(0), jnp.int32(0))


def batch_hidden(config: ModelConfig, params: Params, batch: Batch, *, remat: bool) -> jax.Array:
    """States that predict `batch.tokens.target`, with its shape plus the hidden axis."""
    if isinstance(batch, GroupedBatch):
        return transformer.grouped_hidden_states(
            config, params, batch.prompt_tokens, batch.prompt_length, batch.tokens.target, remat=remat
        )
    return transformer.hidden_states(
        config, params, batch.inputs, positions=batch.positions, segments=batch.segments, remat=remat
    )


def loss_and_metrics(
    config: ModelConfig,
    params: Params,
    batch: Batch,
    coefficient: jax.Array,
    objective: Objective,
    *,
    remat: bool = True,
) -> tuple[jax.Array, Metrics]:
    """Sum of coefficient times per-token loss, and sums over weighted tokens of every metric (float32 scalars)."""

    def statistic(logits: jax.Array, tokens: TokenBatch) -> tuple[jax.Array, Metrics]:
        value, metrics = objective.per_token(logits, tokens)
        return value, {**metrics, "entropy": lax.stop_gradient(entropy(lax.stop_gradient(logits)))}

    hidden = batch_hidden(config, params, batch, remat=remat)
    value, metrics = chunked(config, params, hidden, batch.tokens, statistic)
    # Tokens outside the loss are replaced, not multiplied by zero: theirs may be infinite.
    counted = batch.tokens.weight != 0
    total = jnp.where(counted, value * coefficient, 0.0).sum()
    sums = {name: jnp.where(counted, lax.stop_gradient(m), 0.0).sum() for name, m in metrics.items()}
    return total, sums


def make_update(
    config: ModelConfig,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    micro: int | None = None,
    remat: bool = True,
) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
    """Builds the jitted update.

    Args:
      objective: what to minimise.
      optimizer: an optax transformation over the float32 parameters.
      micro: leading rows (prompts or packed rows) differentiated at a time; all at once when None. Gradients are
        summed, and the reducer sees the whole batch, so the result does not depend on it. Micro-batches beyond
        `batch.live` are not computed.
      remat: recompute layer activations in the backward pass.

    Returns:
      `(state, batch) -> (state, metrics)`; the state is donated. Metrics are means over weighted tokens, plus `loss`,
      `grad_norm`, `tokens` and `applied` (0 when the update was skipped).
    """

    @partial(jax.jit, donate_argnums=0)
    def update(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        weight = batch.tokens.weight
        coefficient = objective.reducer(weight.reshape(-1, weight.shape[-1])).reshape(weight.shape)
        rows = weight.shape[0]
        size = min(micro or rows, rows)
        if rows % size:
            raise ValueError(f"a batch of {rows} rows does not split into micro-batches of {size}")
        differentiate = jax.value_and_grad(
            lambda params, part, share: loss_and_metrics(config, params, part, share, objective, remat=remat),
            has_aux=True,
        )

        def part_at(index: jax.Array) -> tuple[Batch, jax.Array]:
            cut = lambda x: lax.dynamic_slice_in_dim(x, index * size, size) if jnp.ndim(x) else x  # noqa: E731
            return jax.tree.map(cut, (batch, coefficient))

        def add(index: jax.Array, sums: Any) -> Any:
            return jax.tree.map(jnp.add, sums, differentiate(state.params, *part_at(index)))

        shapes = jax.eval_shape(lambda: differentiate(state.params, *part_at(jnp.int32(0))))
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        parts = (batch.live + size - 1) // size
        (loss, sums), grads = lax.fori_loop(0, parts, add, zeros)

        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(norm) & jnp.isfinite(loss)
        changes, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, changes)
        keep = lambda new, old: jnp.where(finite, new, old)  # noqa: E731
        state = TrainState(
            jax.tree.map(keep, params, state.params),
            jax.tree.map(keep, opt_state, state.opt_state),
            state.step + 1,
            state.skipped + (~finite).astype(jnp.int32),
        )
        tokens = (weight != 0).sum()
        metrics = {name: total / jnp.maximum(tokens, 1) for name, total in sums.items()}
        return state, {**metrics, "loss": loss, "grad_norm": norm, "tokens": tokens, "applied": finite}

    return update


def adamw(
    rate: float | optax.Schedule,
    *,
    weight_decay: float = 0.0,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    clip: float = 1.0,
) -> optax.GradientTransformation:
    """AdamW (arXiv 1711.05101) behind clipping by the global norm of the whole tree; norms and biases do not decay."""

    def matrices(params: Params) -> Params:
        is_matrix = lambda path, x: x.ndim - (path[0].key == "layers") >= 2  # noqa: E731
        return jax.tree_util.tree_map_with_path(is_matrix, params)

    return optax.chain(
        optax.clip_by_global_norm(clip),
        optax.adamw(rate, b1=beta1, b2=beta2, eps=eps, weight_decay=weight_decay, mask=matrices),
    )
