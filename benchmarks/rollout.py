"""Times our sampler on a workload: `python benchmarks/rollout.py --model DIR --workload group --json`.

Seconds are of whole calls after one that compiles; the peers in benchmarks/peers/ print the same keys.
"""

import argparse
import json
import time

import jax
import numpy as np
from workloads import workload

import vsr_jax
from vsr_jax.model.transformer import unstack_layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--workload", default="group", choices=["group", "mixed", "single"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    work = workload(args.workload)
    config, params = vsr_jax.load_model(args.model, args.dtype)
    params = jax.block_until_ready(unstack_layers(config, params))
    stop = (151643, 151645) if work.stop else ()
    request = vsr_jax.SamplingParams(n=work.n, max_tokens=work.max_tokens, stop_ids=stop)
    seconds = []
    for i in range(args.repeats + 1):
        began = time.monotonic()
        out = vsr_jax.sample(config, params, work.prompts, request, seed=i)
        seconds.append(time.monotonic() - began)
    tokens = int(out.length.sum())
    best = float(np.min(seconds[1:]))
    result = {
        "who": "vsr_jax",
        "workload": args.workload,
        "compile_s": seconds[0] - best,
        "seconds": seconds[1:],
        "new_tokens": tokens,
        "tokens_per_s": tokens / best,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
    }
    print(json.dumps(result) if args.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
