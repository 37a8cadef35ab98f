"""Times our sampler on a workload: `python benchmarks/rollout.py --model DIR --workload group --json`.

Seconds are of whole calls after one that compiles; the peers in benchmarks/peers/ print the same keys. The workloads
`ragged` and `live` need no model: see mock_workloads.py.
"""

import argparse
import json
import time

import jax
import numpy as np
from mock_workloads import live, ragged
from workloads import workload

import vsr_jax
from vsr_jax.model.transformer import unstack_layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="directory or hub id; not for ragged and live")
    parser.add_argument("--workload", default="group", choices=["group", "mixed", "single", "ragged", "live"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.workload in ("ragged", "live"):
        measured = (ragged if args.workload == "ragged" else live)(args.repeats)
        report({"who": "vsr_jax", "workload": args.workload, **measured}, args.json)
        return
    if args.model is None:
        parser.error("--model is needed for this workload")
    work = workload(args.workload)
    config, params = vsr_jax.load_model(args.model, args.dtype)
    params = jax.block_until_ready(unstack_layers(config, params))
    stop = (151643, 151645) if work.stop else ()
    request = vsr_jax.SamplingParams(n=work.n, max_tokens=work.max_tokens, stop_ids=stop)
    seconds, cpu = [], []
    for i in range(args.repeats + 1):
        began, used = time.monotonic(), time.process_time()
        out = vsr_jax.sample(config, params, work.prompts, request, seed=i)
        seconds.append(time.monotonic() - began)
        cpu.append(time.process_time() - used)
    tokens = int(out.length.sum())
    best = float(np.min(seconds[1:]))
    result = {
        "who": "vsr_jax",
        "workload": args.workload,
        "compile_s": seconds[0] - best,
        "seconds": seconds[1:],
        "cpu_s": cpu[1:],
        "new_tokens": tokens,
        "tokens_per_s": tokens / best,
    }
    report(result, args.json)


def report(result: dict, as_json: bool) -> None:
    result |= {"jax": jax.__version__, "device": jax.devices()[0].device_kind}
    print(json.dumps(result) if as_json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
