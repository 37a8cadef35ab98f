"""A researcher's own file: how it is loaded, and the modifications that the documentation walks through."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_models import rollouts_of, tiny_model

from vsr_jax.errors import UserError
from vsr_jax.objectives.kl import full_kl
from vsr_jax.objectives.policy import grpo
from vsr_jax.objectives.reducers import sequence_mean
from vsr_jax.objectives.statistics import entropy
from vsr_jax.objectives.types import TokenBatch
from vsr_jax.objectives.user import load_objective
from vsr_jax.training.batches import grouped_batch
from vsr_jax.training.step import Model, init_state, make_update

DOCUMENT = Path(__file__).parents[1] / "docs" / "losses.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
NAMES = ("soft_clip", "anchored", "teacher_top_k", "at_forks")
V = 9
RNG = np.random.default_rng(0)
Z, REFERENCE, TEACHER = (jnp.asarray(RNG.normal(size=(6, V)), jnp.float32) for _ in range(3))
BATCH = TokenBatch(
    target=jnp.arange(6),
    weight=jnp.ones(6),
    advantage=jnp.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]),
    logp_old=jax.nn.log_softmax(Z)[jnp.arange(6), jnp.arange(6)] - jnp.array([0.5, 0.5, -0.5, -0.5, 0.01, 0.01]),
    logp_ref=jnp.zeros(6),
    position=jnp.array([0, 1, 2, 0, 1, 2]),
    others={"reference": REFERENCE, "teacher": TEACHER},
)


@pytest.fixture(params=range(len(NAMES)), ids=NAMES)
def documented(request, tmp_path: Path):
    """Every code block of the document, saved as the file that it says it is."""
    assert len(BLOCKS) == len(NAMES)
    path = tmp_path / "my_losses.py"
    path.write_text(BLOCKS[request.param])
    return NAMES[request.param], load_objective(f"{path}:{NAMES[request.param]}")


def gradient(objective, batch=BATCH):
    return np.asarray(jax.grad(lambda z: objective.per_token(z, batch)[0].sum())(Z))


def test_documented_losses_do_what_they_say(documented) -> None:
    name, objective = documented
    if name == "soft_clip":
        value, metrics = objective.per_token(Z, BATCH)
        r, a = np.exp([0.5, 0.5, -0.5, -0.5, 0.01, 0.01]), np.array([1, -1] * 3)
        faded = 1 + 0.2 * np.tanh((r - 1) / 0.2)
        np.testing.assert_allclose(value, -np.minimum(r * a, faded * a), rtol=1e-5)
        np.testing.assert_allclose(metrics["ratio"], r, rtol=1e-5)
        pull = np.abs(gradient(objective) / gradient(grpo(clip_low=1.0, clip_high=1e6))).mean(1)
        np.testing.assert_allclose(pull, np.where((r > 1) == (a > 0), 1 / np.cosh((r - 1) / 0.2) ** 2, 1), rtol=1e-3)
    elif name == "anchored":
        anchor = gradient(objective) - gradient(grpo())
        first = np.asarray(BATCH.position == 0)
        np.testing.assert_allclose(anchor[first], 8 * gradient(full_kl())[first], atol=1e-5)
        assert (anchor[~first] == 0).all()
    elif name == "teacher_top_k":
        exact = full_kl("other||policy", other="teacher")
        every = partial(objective.per_token, k=V)
        np.testing.assert_allclose(every(Z, BATCH)[0], exact.per_token(Z, BATCH)[0], rtol=1e-5)
        assert (objective.per_token(Z, BATCH)[1]["teacher_mass"] < 1).all()
    else:
        prepare = objective.prepare[0]
        tokens = replace(BATCH, weight=BATCH.weight.at[0].set(0))
        made = prepare.gather(prepare.measure(Z, tokens), tokens, None)
        order = np.argsort(-np.asarray(entropy(Z))[1:]) + 1
        assert np.flatnonzero(np.asarray(made["fork"])[1:]).tolist() == sorted((order[:1] - 1).tolist())
        kept = gradient(objective, replace(tokens, extra=made))[1:]
        np.testing.assert_allclose(kept, gradient(grpo())[1:] * np.asarray(made["fork"])[1:, None], atol=1e-7)


def test_documented_losses_pass_through_the_update(documented) -> None:
    config, params = tiny_model(0)
    others = {name: Model(*tiny_model(1)) for name in ("reference", "teacher")}
    batch = grouped_batch(rollouts_of([[1]], [[2, 3], [4]]), np.array([[1.0, -1.0]], np.float32))
    update = make_update(config, documented[1], optax.sgd(1.0))
    _, metrics = jax.eval_shape(update, init_state(params, optax.sgd(1.0)), batch, others)
    assert metrics["loss"].shape == ()


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return str(path)


def test_a_name_may_be_a_function_an_objective_or_a_factory(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
from dataclasses import dataclass
from vsr_jax.objectives.kl import kl
from vsr_jax.objectives.reducers import sequence_mean
from vsr_jax.objectives.types import Objective

@dataclass
class Scale:
    by: float = 3.0

def function(logits, batch, scale=Scale()):
    return scale.by * logits[:, 0], {}

objective = Objective(function, sequence_mean)

def factory(beta=0.5):
    return beta * objective
""",
    )
    for name, factor, reducer in (
        ("function", 3, None),
        ("objective", 3, sequence_mean),
        ("factory", 1.5, sequence_mean),
    ):
        loaded = load_objective(f"{path}:{name}")
        np.testing.assert_allclose(loaded.per_token(Z, BATCH)[0], factor * Z[:, 0], rtol=1e-6)
        assert reducer is None or loaded.reducer is sequence_mean
    assert load_objective(f"{path}:kl").per_token(Z, BATCH)[0].shape == (6,)


def test_an_edited_file_is_read_anew(tmp_path: Path) -> None:
    for factor in (1.0, 2.0):
        path = write(tmp_path, f"def mine(logits, batch):\n    return {factor} * logits[:, 0], {{}}\n")
        np.testing.assert_allclose(load_objective(f"{path}:mine").per_token(Z, BATCH)[0], factor * Z[:, 0])


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("def mine(logits, batch): ...", "yours", "defines no 'yours'; it defines mine"),
        ("import math", "mine", "it defines nothing"),
        ("def mine(logits): ...", "mine", r"takes \(logits\); it must take \(logits, batch\)"),
        ("def mine(logits, *, batch, scale): ...", "mine", "it must take"),
        ("def mine(): return 3", "mine", "returned a int"),
        ("mine = 3", "mine", "is a int, neither"),
        ("x = 1\ny = x / 0\n", "mine", "mine.py, line 2: ZeroDivisionError"),
        ("raise ValueError('two\\nlines')", "mine", "line 1: ValueError: two lines"),
        ("def mine(:\n", "mine", "mine.py, line 1: SyntaxError"),
        ("import no_such_package\n", "mine", "line 1: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(tmp_path: Path, text: str, name: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        load_objective(f"{write(tmp_path, text)}:{name}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("mine.py", "path/to/file.py:name"),
        ("mine:loss", "path/to/file.py:name"),
        ("mine.py:", "path/to/file.py:name"),
        ("no/such/mine.py:loss", "no file .*no/such/mine.py"),
    ],
)
def test_a_place_that_is_none_is_named(place: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_objective(place)
