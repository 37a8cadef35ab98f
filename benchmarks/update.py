"""Times one GRPO update: `python benchmarks/update.py --model DIR`; with `--peer-python` against TRL, in turns.

The share of the machine's rate counts 6 N T FLOPs and one rematerialisation, 8 N T in all, with N the elements of the
weight matrices and T the tokens they are applied to (the head only to those that are scored); attention is not
counted. The rate is that of a float32 matrix product, measured in the same process.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from update_work import update_work

HERE = Path(__file__).resolve().parent


def matmul_rate(size: int = 3072, repeats: int = 6) -> tuple[float, float]:
    """FLOP/s of a square float32 matrix product, the best of some, by the clock and by the processors' own time."""
    x = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(x))
    seconds, cpu_seconds = [], []
    for _ in range(repeats):
        began, cpu = time.monotonic(), time.process_time()
        jax.block_until_ready(product(x))
        seconds.append(time.monotonic() - began)
        cpu_seconds.append(time.process_time() - cpu)
    return 2 * size**3 / min(seconds), 2 * size**3 / min(cpu_seconds)


def ours(args: argparse.Namespace) -> dict:
    """Times our update; every call is a whole optimizer step."""
    import vsr_jax
    from vsr_jax.objectives.policy import grpo
    from vsr_jax.objectives.types import TokenBatch
    from vsr_jax.training.batches import GroupedBatch
    from vsr_jax.training.step import adamw, init_state, make_update

    work = update_work(tokens=args.tokens)
    config, params = vsr_jax.load_model(args.model, "float32")
    prompts, responses = work.prompts, work.responses
    if not args.shared_prompt:  # every response with a prompt of its own, as a peer without sharing has it
        group = responses.shape[1]
        prompts, responses = np.repeat(prompts, group, 0), responses.reshape(-1, 1, responses.shape[2])
    shape = responses.shape
    advantage = np.broadcast_to(work.advantages.reshape(shape[:2])[..., None], shape).astype(np.float32)
    rate = matmul_rate()
    optimizer = adamw(1e-6)
    micro = max(1, shape[0] // args.parts)
    update = make_update(config, grpo(), optimizer, micro=micro, remat=not args.keep, chunk=args.chunk)
    state = init_state(params, optimizer, take=True)
    del params
    zero = np.zeros(shape, np.float32)
    tokens = TokenBatch(
        target=responses,
        weight=zero + 1,
        advantage=advantage,
        logp_old=zero - 12,
        logp_ref=zero,
        position=np.broadcast_to(np.arange(shape[2], dtype=np.int32), shape),
    )
    batch = GroupedBatch(prompts, np.full(len(prompts), prompts.shape[1], np.int32), tokens, np.int32(len(prompts)))
    began = time.monotonic()
    compiled = update.lower(state, batch).compile()
    compile_s = time.monotonic() - began
    seconds, cpu_seconds = [], []
    for _ in range(args.repeats):
        began, cpu = time.monotonic(), time.process_time()
        state, metrics = compiled(state, batch)
        assert bool(metrics["applied"])
        seconds.append(time.monotonic() - began)
        cpu_seconds.append(time.process_time() - cpu)
    rate, cpu_rate = map(max, rate, matmul_rate())
    layers = sum(x.size for x in jax.tree.leaves(state.params["layers"]) if x.ndim == 3)
    head = config.vocab_size * config.hidden_size
    scored = responses.size
    flops = 8 * (layers * (prompts.size + scored) + head * scored)
    return {
        "who": "vsr_jax",
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "compile_s": compile_s,
        "tokens": int(prompts.size + scored),
        "matmul_gflops": rate / 1e9,
        "share_of_matmul_rate": flops / min(seconds) / rate,
        "share_by_processor_time": flops / min(cpu_seconds) / cpu_rate,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "jax": jax.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--parts", type=int, default=2, help="micro-batches")
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--keep", action="store_true", help="keep activations instead of recomputing them")
    parser.add_argument("--shared-prompt", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--peer-python", help="interpreter of an environment with torch and trl")
    parser.add_argument("--turns", type=int, default=2, help="with a peer: how often each has its turn")
    args = parser.parse_args()
    if not args.peer_python:
        print(json.dumps(ours(args)))
        return
    own = [a for a in sys.argv[1:] if not a.startswith("--peer-python") and a != args.peer_python]
    peer = [args.peer_python, str(HERE / "peers" / "trl_grpo.py"), "--model", args.model, "--tokens", str(args.tokens)]
    # One after the other: together they would not fit into the memory of a small machine.
    best = {}
    for _ in range(args.turns):
        for command in ([sys.executable, __file__, *own], peer):
            line = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
            print(line, flush=True)
            found = json.loads(line)
            best[found["who"]] = min(min(found["seconds"]), best.get(found["who"], float("inf")))
    (us, mine), (them, theirs) = best.items()
    print(json.dumps({"ratio": theirs / mine, us: mine, them: theirs}))


if __name__ == "__main__":
    main()
