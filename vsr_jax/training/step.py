"""One update: micro-batches summed, one clipped optimizer step, nothing applied when a gradient is not finite."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import lax

from vsr_jax.errors import UserError
from vsr_jax.model import transformer
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.model.placement import by_rows
from vsr_jax.objectives.statistics import entropy
from vsr_jax.objectives.types import Objective, TokenBatch
from vsr_jax.scoring import CHUNK, chunked
from vsr_jax.training.batches import GroupedBatch, PackedBatch, sequence_ids

Batch: TypeAlias = GroupedBatch | PackedBatch
Metrics: TypeAlias = dict[str, jax.Array]
MAXIMUM = "_max"
"""How the name of a metric ends whose maximum is reported, not its mean."""


@struct.dataclass
class Model:
    """A further model whose logits a loss may see: a reference, a teacher. It may differ from the policy in size.

    Passed anew to every update, so that it may move between updates.
    """

    config: ModelConfig = struct.field(pytree_node=False)
    params: Params


Others: TypeAlias = Mapping[str, Model]


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


def init_state(params: Params, optimizer: optax.GradientTransformation, *, take: bool = False) -> TrainState:
    """A state at step 0.

    Args:
      take: use the caller's float32 arrays themselves, which the first update destroys, instead of copies.
    """
    keep = lambda x: take and isinstance(x, jax.Array) and x.dtype == jnp.float32  # noqa: E731
    params = jax.tree.map(lambda x: x if keep(x) else jnp.array(x, jnp.float32, copy=True), params)
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


def token_statistics(
    config: ModelConfig,
    params: Params,
    batch: Batch,
    statistic: Callable[[jax.Array, TokenBatch], Any],
    others: Others | None = None,
    *,
    remat: bool = False,
    chunk: int = CHUNK,
) -> Any:
    """A statistic of the logits at every token of a batch, and of the logits of other models at the same tokens.

    Args:
      statistic: `(logits float32[n, V], TokenBatch[n]) -> pytree of [n, ...]`; it finds the other models' logits in
        `TokenBatch.others`, cut or padded with -inf to the policy's vocabulary, and without gradient.
      others: models by name.
      remat: recompute layer activations in the backward pass.
      chunk: tokens whose logits exist at one time.

    Returns:
      The statistic's pytree with the leading shape of `batch.tokens`.

    Raises:
      UserError: a model has tokens that the policy's vocabulary has no room for.
    """
    others = others or {}
    for name, model in others.items():
        if model.config.num_tokens > config.vocab_size:
            raise UserError(
                f"model {name!r} has {model.config.num_tokens} tokens, the policy {config.vocab_size} at most; "
                "their vocabularies must be the same"
            )
    hidden = batch_hidden(config, params, batch, remat=remat)
    states = {name: batch_hidden(model.config, model.params, batch, remat=False) for name, model in others.items()}

    def at_chunk(logits: jax.Array, chunk: tuple[TokenBatch, dict[str, jax.Array]]) -> Any:
        tokens, states = chunk
        seen = {
            name: lax.stop_gradient(_fit_vocab(transformer.logits(m.config, m.params, states[name]), logits.shape[-1]))
            for name, m in others.items()
        }
        return statistic(logits, replace(tokens, others=seen))

    return chunked(config, params, hidden, (_blank(batch.tokens), states), at_chunk, chunk=chunk)


def _fit_vocab(logits: jax.Array, size: int) -> jax.Array:
    """Rows that only pad a vocabulary come and go with the model's size; they hold -inf."""
    missing = max(size - logits.shape[-1], 0)
    return jnp.pad(logits, ((0, 0), (0, missing)), constant_values=-jnp.inf)[:, :size]


def _blank(tokens: TokenBatch) -> TokenBatch:
    """Zeros in every float array where a token is outside the loss.

    A forced token may have an old log-probability of -inf. Masking the loss would not do: the gradient of a masked
    infinity is NaN.
    """
    counted = tokens.weight != 0

    def blank(x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return jnp.where(counted.reshape(counted.shape + (1,) * (x.ndim - counted.ndim)), x, 0)

    return jax.tree.map(blank, tokens)


def loss_and_metrics(
    config: ModelConfig,
    params: Params,
    batch: Batch,
    coefficient: jax.Array,
    objective: Objective,
    others: Others | None = None,
    *,
    remat: bool = True,
    chunk: int = CHUNK,
) -> tuple[jax.Array, Metrics]:
    """Sum of coefficient times per-token loss, and sums over weighted tokens of every metric (float32 scalars).

    A metric whose name ends in `_max` is 0 or larger, and its maximum is taken instead of the sum.

    `batch` must hold what `objective.prepare` makes, if it has any. Other arguments as in `token_statistics`.
    """

    def statistic(logits: jax.Array, tokens: TokenBatch) -> tuple[jax.Array, Metrics]:
        value, metrics = _checked(objective.per_token(logits, tokens), tokens.target.shape)
        return value, {**metrics, "entropy": lax.stop_gradient(entropy(lax.stop_gradient(logits)))}

    value, metrics = token_statistics(config, params, batch, statistic, others, remat=remat, chunk=chunk)
    # Tokens outside the loss are replaced, not multiplied by zero: theirs may be infinite.
    counted = batch.tokens.weight != 0
    total = jnp.where(counted, value * coefficient, 0.0).sum()
    seen = {name: jnp.where(counted, lax.stop_gradient(m), 0.0) for name, m in metrics.items()}
    sums = {name: m.max() if name.endswith(MAXIMUM) else m.sum() for name, m in seen.items()}
    return total, sums


def _checked(result: Any, shape: tuple[int, ...]) -> tuple[jax.Array, Metrics]:
    """What a per-token function returned. Raises UserError unless it is (values[n], {name: values[n]})."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
        raise UserError("an objective's per-token function must return (values, {name: values}), each of shape [n]")
    for name, x in {"the loss": result[0], **result[1]}.items():
        if jnp.shape(x) != shape:
            raise UserError(
                f"an objective's per-token function returned {name} of shape {jnp.shape(x)}; it needs one number a "
                f"token, {shape}, and leaves averaging to the reducer"
            )
    return result[0], dict(result[1])


def _part(tree: Any, index: jax.Array, size: int) -> Any:
    """Rows `index * size` up to the next part, of every array of a pytree."""
    # On a mesh the rows of a part spread over all devices again; one device's rows alone would leave the others idle.
    cut = lambda x: by_rows(lax.dynamic_slice_in_dim(x, index * size, size)) if jnp.ndim(x) else x  # noqa: E731
    return jax.tree.map(cut, tree)


def statistics_by_parts(
    config: ModelConfig,
    params: Params,
    batch: Batch,
    statistic: Callable[[jax.Array, TokenBatch], Any],
    others: Others | None = None,
    *,
    size: int,
    chunk: int = CHUNK,
) -> Any:
    """`token_statistics`, `size` rows of the batch at a time, without gradient; zeros beyond `batch.live`."""

    def measure(index: jax.Array) -> Any:
        return token_statistics(config, params, _part(batch, index, size), statistic, others, chunk=chunk)

    def write(index: jax.Array, all_rows: Any) -> Any:
        put = lambda whole, part: lax.dynamic_update_slice_in_dim(whole, part, index * size, 0)  # noqa: E731
        return jax.tree.map(put, all_rows, measure(index))

    rows = batch.tokens.weight.shape[0]
    shapes = jax.eval_shape(measure, jnp.int32(0))
    empty = jax.tree.map(lambda s: jnp.zeros((rows, *s.shape[1:]), s.dtype), shapes)
    return lax.stop_gradient(lax.fori_loop(0, (batch.live + size - 1) // size, write, empty))


def _prepared(
    config: ModelConfig,
    params: Params,
    batch: Batch,
    objective: Objective,
    others: Others | None,
    size: int,
    chunk: int,
) -> Batch:
    """The batch with what `objective.prepare` makes of the current policy in `extra`, `size` rows at a time."""

    def statistic(logits: jax.Array, tokens: TokenBatch) -> list[Any]:
        return [prepare.measure(logits, tokens) for prepare in objective.prepare]

    measured = statistics_by_parts(config, params, batch, statistic, others, size=size, chunk=chunk)
    extra = dict(batch.tokens.extra)
    for prepare, values in zip(objective.prepare, measured, strict=True):
        made = prepare.gather(values, batch.tokens, sequence_ids(batch))
        if clash := extra.keys() & made.keys():
            raise ValueError(f"two objectives, or an objective and the batch, bring an array named {min(clash)!r}")
        extra |= made
    return replace(batch, tokens=replace(batch.tokens, extra=extra))


def _merge(sums: Any, more: Any) -> Any:
    """Adds up values, metrics and gradients of two parts of a batch; see `loss_and_metrics` for maxima."""
    ((loss, metrics), grads), ((loss2, metrics2), grads2) = sums, more
    join = lambda name: jnp.maximum if name.endswith(MAXIMUM) else jnp.add  # noqa: E731
    metrics = {name: join(name)(x, metrics2[name]) for name, x in metrics.items()}
    return (loss + loss2, metrics), jax.tree.map(jnp.add, grads, grads2)


def make_update(
    config: ModelConfig,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    micro: int | None = None,
    remat: bool = True,
    chunk: int = CHUNK,
) -> Callable[..., tuple[TrainState, Metrics]]:
    """Builds the jitted update.

    Args:
      objective: what to minimise.
      optimizer: an optax transformation over the float32 parameters.
      micro: leading rows (prompts or packed rows) differentiated at a time; all at once when None. Gradients are
        summed, and the reducer sees the whole batch, so the result does not depend on it. Micro-batches beyond
        `batch.live` are not computed.
      remat: recompute layer activations in the backward pass.
      chunk: tokens whose logits exist at one time.

    Returns:
      `(state, batch, others=None) -> (state, metrics)`. The state is donated, so that no other model may share its
      arrays. `others` holds further models by name (see `Model`), whose logits the objective may read. Metrics are
      means over weighted tokens, plus `loss`, `grad_norm`, `tokens` and `applied` (0 when the update was skipped).
    """

    @partial(jax.jit, donate_argnums=0)
    def update(state: TrainState, batch: Batch, others: Others | None = None) -> tuple[TrainState, Metrics]:
        weight = batch.tokens.weight
        coefficient = objective.reducer(weight, sequence_ids(batch))
        rows = weight.shape[0]
        size = min(micro or rows, rows)
        if rows % size:
            raise ValueError(f"a batch of {rows} rows does not split into micro-batches of {size}")
        if objective.prepare:
            batch = _prepared(config, state.params, batch, objective, others, size, chunk)
        differentiate = jax.value_and_grad(
            lambda params, part, share: loss_and_metrics(
                config, params, part, share, objective, others, remat=remat, chunk=chunk
            ),
            has_aux=True,
        )

        def part_at(index: jax.Array) -> tuple[Batch, jax.Array]:
            return _part((batch, coefficient), index, size)

        def add(index: jax.Array, sums: Any) -> Any:
            return _merge(sums, differentiate(state.params, *part_at(index)))

        if size == rows:
            # A sum of one would hold a second copy of the gradient.
            (loss, sums), grads = differentiate(state.params, batch, coefficient)
        else:
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
        mean = lambda name, total: total if name.endswith(MAXIMUM) else total / jnp.maximum(tokens, 1)  # noqa: E731
        metrics = {name: mean(name, total) for name, total in sums.items()}
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
