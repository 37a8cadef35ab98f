"""Compiles the decode chunk for a TPU slice, on any Linux machine with libtpu, and counts its memory and bytes.

    python benchmarks/aot_decode.py --model qwen3-8b-base --topology v5p:2x2x4 --slots 256 --length 3072 --json

`length` is the keys that each slot sees: its own tokens but for the shared prompt (`--prompt`, twice a lane of
`--group` slots, which holds two). `bytes_ratio` is what one step moves by the compiled program's text over what any
program must move on a device: weights, live keys and values, and the new ones. A loop's body counts as often as it
runs, and an update in place counts as what it writes (see vsr_jax/parallel/hlo.py).
"""

import argparse
import json

from vsr_jax.parallel.mesh import make_mesh, parse_mesh
from vsr_jax.parallel.plan import GIB, local_bytes, plan
from vsr_jax.parallel.topology import parse_topology, quiet_compiler, slice_devices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3-8b-base")
    parser.add_argument("--topology", default="v5p:2x2x4")
    parser.add_argument("--mesh", default="")
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--length", type=int, default=3072)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    quiet_compiler()

    from vsr_jax.parallel.rollout import rollout_sizes
    from vsr_jax.study.plan_command import model_config
    from vsr_jax.study.plan_stages import STEPS, rollout_programs

    config = model_config(args.model)
    chip, _ = parse_topology(args.topology)
    devices = slice_devices(args.topology)
    mesh = make_mesh(parse_mesh(args.mesh) or rollout_sizes(config, len(devices), chip.hbm_gib * 2**30), devices)
    lanes = args.slots // args.group
    decode, _ = rollout_programs(config, mesh, lanes, args.group, args.prompt, args.length - args.prompt)
    planned = plan(decode, chip)
    weights, kv = planned.memory_gib["parameters"], planned.memory_gib["cache"]
    result = {
        "fits": planned.fits,
        "weights_gib": weights,
        "kv_gib": kv,
        "mesh": dict(mesh.shape),
        "lanes": lanes,
        "slots": args.slots,
        "compile_s": planned.compile_seconds,
    }
    if planned.fits:
        per_token = 2 * 2 * config.num_layers * config.num_kv_heads * config.head_dim / GIB
        needed = weights + kv + args.slots * per_token / len(devices)
        # A step gathers rows of the embedding and need not read the table, unless it is the output matrix too.
        embedding = decode.kinds["parameters"]["embed"]
        unread = 0.0 if config.tie_word_embeddings else local_bytes(embedding) / GIB
        moved = planned.cost.bytes / STEPS / GIB
        result |= {
            "temp_gib": planned.memory_gib["temporaries"],
            "bytes_gib": moved,
            "bytes_needed_gib": needed,
            "bytes_ratio": moved / needed,
            "bytes_ratio_without_embedding": moved / (needed - unread),
            "step_ms": 1e3 * planned.roofline / STEPS,
            "bound": planned.bound,
        }
    else:
        result["message"] = planned.message
    print(json.dumps(result) if args.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
