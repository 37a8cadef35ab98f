"""Compiles the decode chunk for a TPU slice, on any Linux machine with libtpu, and counts its memory and bytes.

    python benchmarks/aot_decode.py --model qwen3-8b-base --topology v5p:2x2x4 --slots 256 --length 3072 --json

`length` is the keys that each slot sees: its own tokens but for the shared prompt (`--prompt`, once a lane of `--group`
slots). `bytes_ratio` is what the compiler counts for one step over what any program must move on a device: weights,
live keys and values, and the new ones.
"""

import argparse
import json
import time

import jax

from vsr_jax.parallel.mesh import make_mesh, parse_mesh
from vsr_jax.parallel.plan import GIB, local_bytes
from vsr_jax.parallel.topology import hidden_noise, parse_topology, quiet_compiler, slice_devices


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

    from vsr_jax.study.plan_command import model_config, rollout_mesh
    from vsr_jax.study.plan_stages import rollout_programs

    config = model_config(args.model)
    chip, _ = parse_topology(args.topology)
    devices = slice_devices(args.topology)
    mesh = make_mesh(parse_mesh(args.mesh) or rollout_mesh(config, len(devices), chip.hbm_gib), devices)
    lanes = args.slots // args.group
    decode, _ = rollout_programs(config, mesh, lanes, args.group, args.prompt, args.length - args.prompt)
    weights, kv = (local_bytes(decode.kinds[kind]) / GIB for kind in ("parameters", "cache"))
    per_token = 2 * 2 * config.num_layers * config.num_kv_heads * config.head_dim / GIB
    result = {"fits": True, "weights_gib": weights, "kv_gib": kv, "mesh": dict(mesh.shape), "lanes": lanes}
    began = time.monotonic()
    try:
        with jax.set_mesh(mesh), hidden_noise():
            compiled = decode.function.lower(*decode.args).compile()
    except jax.errors.JaxRuntimeError as error:
        result |= {"fits": False, "message": str(error).splitlines()[0]}
    else:
        # XLA counts the body of the chunk's loop once, which is one step, with what surrounds the loop.
        moved = compiled.cost_analysis()["bytes accessed"] / GIB
        result |= {
            "temp_gib": compiled.memory_analysis().temp_size_in_bytes / GIB,
            "bytes_gib": moved,
            "bytes_ratio": moved / (weights + kv + args.slots * per_token / len(devices)),
        }
    result["compile_s"] = time.monotonic() - began
    print(json.dumps(result) if args.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
