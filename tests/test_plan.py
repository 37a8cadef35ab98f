"""The planner: arithmetic of compiled programs, the chip table, and real programs compiled for TPUs without one."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from vsr_jax.errors import UserError
from vsr_jax.model.config import parse_config
from vsr_jax.model.presets import preset
from vsr_jax.parallel.hlo import Cost, program_cost
from vsr_jax.parallel.plan import Planned
from vsr_jax.parallel.rollout import rollout_sizes
from vsr_jax.parallel.topology import CHIPS, parse_topology
from vsr_jax.study.plan_command import largest, largest_of, table
from vsr_jax.study.plan_stages import pass_flops

TINY = {
    "model_type": "qwen3",
    "vocab_size": 2048,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}


def cost_of(function, *args):
    return program_cost(jax.jit(function).lower(*args).compile().as_text())


def test_a_loop_counts_as_often_as_it_runs() -> None:
    w, x = jnp.ones((7, 32, 32)), jnp.ones((4, 32))
    once = cost_of(lambda w, x: x @ w[0], w, x)
    assert once.flops == 2 * 4 * 32 * 32
    nested = cost_of(
        lambda w, x: lax.scan(lambda x, m: (lax.fori_loop(0, 3, lambda _, y: y @ m, x), None), x, w)[0], w, x
    )
    assert nested.flops == 21 * once.flops
    assert nested.unknown_loops == 0
    text = jax.jit(lambda n, x: lax.fori_loop(0, n, lambda _, y: y @ w[0], x)).lower(3, x).compile().as_text()
    assert program_cost(text, trips=5).flops == 5 * once.flops
    assert program_cost(text).unknown_loops == 1


CONVOLUTION = """
ENTRY %main (a: bf16[8,64,2], b: bf16[8,16,2]) -> f32[8,64,16] {{
  %a = bf16[{left}]{{2,1,0}} parameter(0)
  %b = bf16[{right}]{{2,1,0}} parameter(1)
  ROOT %c = f32[{out}]{{2,1,0}} convolution(%a, %b), window={window}, dim_labels={labels}
}}
"""


@pytest.mark.parametrize(
    ("left", "right", "out", "window", "labels", "flops"),
    [
        # As the TPU compiler writes them: [9, 4] x [4, 5]; contraction split in two; 8 products in a batch.
        ("9,4", "5,4", "9,5", "{size=}", "bf_oi->bf", 2 * 9 * 4 * 5),
        ("9,2,4", "5,2,4", "9,5,1", "{size=2}", "b0f_o0i->bf0", 2 * 9 * 8 * 5),
        ("8,9,4", "8,4,5", "8,9,5", "{size=8 stride=7 lhs_dilate=8}", "0bf_0io->0bf", 2 * 8 * 9 * 4 * 5),
    ],
)
def test_matrix_products_written_as_convolutions(left, right, out, window, labels, flops) -> None:
    text = CONVOLUTION.format(left=left, right=right, out=out, window=window, labels=labels)
    assert program_cost(text).flops == flops


PROGRAM = """
%body (p: (s32[], bf16[64,1024])) -> (s32[], bf16[64,1024]) {
  %p = (s32[], bf16[64,1024]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = bf16[64,1024]{1,0} get-tuple-element(%p), index=1
  %two = s32[] constant(2)
  %next = s32[] add(%i, %two)
  %g = bf16[64,4096]{1,0} all-gather(%x), channel_id=1, replica_groups=mesh['a'=4,'b'=2] {'a'}, dimensions={1}
  %r = bf16[64,1024]{1,0} all-reduce(%x), channel_id=2, replica_groups={{0,1},{2,3}}, to_apply=%sum
  ROOT %t = (s32[], bf16[64,1024]{1,0}) tuple(%next, %r)
}

%cond (q: (s32[], bf16[64,1024])) -> pred[] {
  %q = (s32[], bf16[64,1024]{1,0}) parameter(0)
  %n = s32[] constant(8)
  %j = s32[] get-tuple-element(%q), index=0
  ROOT %less = pred[] compare(%j, %n), direction=LT
}

ENTRY %main (s: (s32[], bf16[64,1024])) -> (s32[], bf16[64,1024]) {
  %s = (s32[], bf16[64,1024]{1,0}) parameter(0)
  ROOT %w = (s32[], bf16[64,1024]{1,0}) while(%s), condition=%cond, body=%body
}
"""


def test_collectives_by_what_a_device_sends() -> None:
    cost = program_cost(PROGRAM)
    size, runs = 64 * 1024 * 2, 4  # 8 steps of 2
    assert cost.counts == {"all-gather": runs, "all-reduce": runs}
    assert cost.collectives == {"all-gather": runs * 3 * size, "all-reduce": runs * size}
    # The gathered array is written once a run and its part read; the sum reads and writes.
    assert cost.bytes == pytest.approx(runs * (5 * size + 2 * size + 12))


SLICED = """
%copied (q: bf16[8,1024]) -> bf16[2,1024] {{
  %q = bf16[8,1024]{{1,0}} parameter(0)
  ROOT %s = bf16[2,1024]{{1,0:S(1)}} slice(%q), slice={{[0:2], [0:1024]}}
}}

ENTRY %main (p: bf16[8,1024]) -> bf16[2,1024] {{
  %p = bf16[8,1024]{{1,0}} parameter(0)
  %start = ((bf16[8,1024]{{1,0}}), bf16[2,1024]{{1,0:S(1)}}, s32[]{{:S(2)}}) {start}
  ROOT %end = bf16[2,1024]{{1,0:S(1)}} {end}
}}
"""


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("slice-start(%p), slice={[0:2], [0:1024]}", "slice-done(%start)"),
        ("async-start(%p), calls=%copied", "async-done(%start)"),
    ],
)
def test_a_slice_fetched_in_the_background_is_read_once_in_either_spelling(start, end) -> None:
    assert program_cost(SLICED.format(start=start, end=end)).bytes == 2 * 1024 * 2


NESTED = """
%as_it_came (q: bf16[8,1024]) -> bf16[8,1024,1] {{
  %q = bf16[8,1024]{{1,0}} parameter(0)
  ROOT %b = bf16[8,1024,1]{{1,0,2}} bitcast(%q)
}}

%product (x: bf16[4,8], w: bf16[8,1024]) -> bf16[4,1024] {{
  %x = bf16[4,8]{{1,0:S(1)}} parameter(0)
  %w = bf16[8,1024]{{1,0}} parameter(1)
  %inner = bf16[8,1024,1]{{1,0,2}} fusion(%w), kind=kLoop, calls=%as_it_came
  {uses}
}}

ENTRY %main (a: bf16[4,8], p: bf16[8,1024]) -> bf16[4,1024] {{
  %a = bf16[4,8]{{1,0:S(1)}} parameter(0)
  %p = bf16[8,1024]{{1,0}} parameter(1)
  ROOT %f = bf16[4,1024]{{1,0:S(1)}} fusion(%a, %p), kind=kOutput, calls=%product
}}
"""


@pytest.mark.parametrize(
    ("uses", "rows"),
    [
        ("ROOT %y = bf16[4,1024]{1,0} dot(%x, %inner), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 8),
        (
            "%cut = bf16[2,1024,1]{1,0,2} slice(%inner), slice={[0:2], [0:1024], [0:1]}\n"
            "  ROOT %y = bf16[4,1024]{1,0} custom-call(%x, %cut)",
            2,
        ),
    ],
)
def test_a_matrix_that_reaches_its_product_through_a_nested_fusion_is_read(uses, rows) -> None:
    # The product's other operand and its result stay on the chip.
    assert program_cost(NESTED.format(uses=uses)).bytes == rows * 1024 * 2


def test_topologies_by_name() -> None:
    chip, shape = parse_topology("v5p:2x2x4")
    assert (chip.name, shape, chip.hbm_gib) == ("v5p", (2, 2, 4), 95)
    for text, says in (("v9:2", "known are v4, v5e"), ("v5e:2x2x4", "v5e slices have 2 dimensions"), ("v5e:", "as in")):
        with pytest.raises(UserError, match=says):
            parse_topology(text)
    assert all(chip.flops / chip.hbm_bytes > 100 for chip in CHIPS.values())


def test_flops_of_the_model_are_twice_its_parameters_a_token() -> None:
    config = parse_config(preset("qwen3-8b-base"))
    matrices, attention = pass_flops(config, 1, 9216)
    assert matrices / 9216 / 2 == pytest.approx(7.57e9, rel=2e-3)  # 8.19e9 parameters without the input embedding
    assert attention == pytest.approx(2 * 36 * 4096 * 9216**2)
    assert rollout_sizes(config, 16, 16 * 2**30) == {"data": 4, "tensor": 4}
    assert rollout_sizes(config, 16, 95 * 2**30) == {"data": 16, "tensor": 1}


def test_search_finds_the_largest_size_that_fits() -> None:
    class Fake:
        def __init__(self, size: int):
            self.size, self.fits = size, size <= 44

    asked: list[int] = []

    def attempt(size: int) -> list[Fake]:
        asked.append(size)
        return [Fake(size)]

    assert largest(attempt, 4, 4, tries=20)[0].size == 44
    assert max(asked) == 64
    assert not largest(lambda size: [Fake(1000)], 64, 4, tries=20)[0].fits


def run_plan(directory, *stages: str, **settings):
    values = {**settings, "stage": ",".join(stages)}
    code = f"from vsr_jax.cli_plan import Plan; Plan({str(directory)!r}, **{values!r}).run()"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "TPU", "XLA"))}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    if find_spec("libtpu") is None:
        pytest.skip("the TPU compiler is not installed: pip install libtpu (Linux only)")
    directory = tmp_path_factory.mktemp("tiny")
    (directory / "config.json").write_text(json.dumps(TINY))
    return directory


def test_real_programs_compile_for_a_slice_that_is_not_there(tiny) -> None:
    run = run_plan(
        tiny,
        "rollout",
        "score",
        topology="v5e:2x2",
        json=True,
        length=256,
        samples=16,
        slots=16,
        prompt=128,
        response=128,
    )
    assert run.returncode == 0, run.stderr
    # Progress and nothing of the compiler's own talk.
    assert [line.split(":")[0] for line in run.stderr.splitlines()] == [
        "compiling rollout decode",
        "compiling rollout prefill",
        "compiling score",
    ]
    decode, prefill, score = json.loads(run.stdout)
    weights = 2 * (sum(pass_flops(parse_config(TINY), 1, 1)[:1]) / 2 + 2048 * 256)
    assert decode["memory_gib"]["parameters"] * 2**30 == pytest.approx(weights, rel=0.01)
    # On each chip keys and values of 2 layers, of one lane with 2 prompts and 4 responses, 2 heads of 128.
    cache = 2 * 2 * 2 * (2 * 128 + 4 * 128) * 2 * 128
    assert decode["memory_gib"]["cache"] * 2**30 == pytest.approx(cache, rel=0.01)
    # No product is computed on two devices, and a step reads its weights and its cache once at most.
    assert -0.3 < decode["waste"] < 0.1
    assert 0 < decode["cost"]["bytes"] < 1.3 * 32 * (weights + cache)
    assert prefill["fits"]
    assert score["cost"]["collectives"]
    assert score["tokens_per_second"] > 0


def test_what_does_not_fit_says_so_in_the_compilers_words(tiny) -> None:
    run = run_plan(tiny, "score", topology="v5e:2x2", rows=16384, length=8192)
    assert run.returncode == 1
    assert "DOES NOT FIT" in run.stdout
    assert "hbm" in run.stdout.lower()


def test_bad_requests_are_refused_before_anything_is_compiled(tiny) -> None:
    run = run_plan(tiny, "rolout", topology="v5e:2x2")
    assert "unknown stage 'rolout'" in run.stderr


def planned(**values) -> Planned:
    cost = Cost(flops=2e12, bytes=1e9, collectives={"all-gather": 2**30}, counts={"all-gather": 4})
    given = {"fits": True, "message": "", "memory_gib": {"parameters": 1.5, "temporaries": 2.0}, "cost": cost}
    given |= {"seconds": {"compute": 0.01, "memory": 0.002}, "tokens": 3600.0, "flops_needed": 3.2e13, "devices": 16}
    return Planned(**{"name": "update", "compile_seconds": 1.0, **given, **values})


def test_what_is_printed_has_memory_waste_limits_and_price() -> None:
    text = table([planned()], price=1.2)
    assert "fits; HBM a chip 3.50 GiB: parameters 1.50, temporaries 2.00" in text
    assert "2.0 TFLOP a chip (+0.0% of what the model needs)" in text
    assert "all-gather 1.00 GiB in 4" in text
    assert "bound by compute" in text
    # 3600 tokens in 10 ms; 16 chips at 1.2 an hour.
    assert "at most 360,000 tokens/s on 16 chips" in text
    assert "19.20 an hour; 0.015 a million tokens" in text
    assert "hour" not in table([planned()])
    assert "DOES NOT FIT: Ran out" in table([planned(fits=False, message="Ran out")])


@pytest.mark.parametrize(("limit", "best"), [(64, 64), (63, 32), (16, 16), (17, 16), (1, 16)])
def test_the_largest_micro_batch_divides_the_rows(limit, best) -> None:
    asked: list[int] = []

    def attempt(size: int) -> list[Planned]:
        asked.append(size)
        return [planned(tokens=size, fits=size <= limit)]

    (found,) = largest_of(attempt, [16, 32, 64])
    assert (found.tokens, found.fits) == (best, best <= limit)
    assert asked[0] == 64
    assert len(asked) == len(set(asked))


def test_a_search_that_is_cut_short_says_so() -> None:
    said: list[str] = []
    found = largest(lambda size: [planned(tokens=size)], 4, 4, tries=3, say=said.append)
    assert found[0].tokens == 16
    assert "a larger size may fit" in said[0]


def test_an_update_compiles_with_splash_and_shows_its_memory_by_kind(tiny) -> None:
    run = run_plan(tiny, "update", topology="v5e:2x2", length=512, rows=8, micro=8, json=True)
    assert run.returncode == 0, run.stderr
    (update,) = json.loads(run.stdout)
    memory = {kind: gib * 2**30 for kind, gib in update["memory_gib"].items()}
    weights = 4 * (pass_flops(parse_config(TINY), 1, 1)[0] / 2 + 2048 * 256)
    assert memory["parameters"] == pytest.approx(weights / 4, rel=0.01)
    assert memory["gradients"] == pytest.approx(weights / 4, rel=0.01)
    assert memory["optimiser"] == pytest.approx(2 * weights / 4, rel=0.01)
    # Two rows of 512 positions of 256 numbers in bfloat16, for each of 2 layers.
    assert memory["activations"] == 2 * 2 * 512 * 256 * 2
    # Attention is counted (a quarter of the FLOPs here), and no row is computed on two chips.
    assert -0.1 < update["waste"] < 0.1
    assert update["cost"]["unknown_kernels"] == []


@pytest.mark.slow
def test_a_search_finds_the_rows_that_fit(tiny) -> None:
    run = run_plan(tiny, "score", topology="v5e:2x2", length=8192, rows=2048, search=True, json=True)
    assert run.returncode == 0, run.stderr
    (score,) = json.loads(run.stdout)
    asked = [int(line.split("score: ")[1].split()[0]) for line in run.stderr.splitlines() if "compiling" in line]
    found = int(score["note"].split()[0])
    assert found in asked
    assert max(asked) > found
    assert 8 < sum(score["memory_gib"].values()) < 16
