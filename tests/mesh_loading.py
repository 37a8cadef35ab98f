"""Loads every golden model on a mesh of virtual CPU devices; run by `test_mesh_loading.py` in processes of its own.

    mesh_loading.py OUT [PROCESS PROCESSES PORT]

With several processes each holds an equal part of the eight devices. Checks itself against plain loading, writes the
model back from the mesh into OUT, and prints a JSON line: for each model the bytes that this process read of its
tensors and the bytes of its distinct shards.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

GOLDENS = Path(__file__).parent / "goldens"
DEVICES = 8
RULES = {"vocab": "model", "heads": "model", "kv_heads": "model", "mlp": "model", "embed": "data"}


def main() -> None:
    out, *place = sys.argv[1:]
    process, processes, port = map(int, place or (0, 1, 0))
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES // processes)
    if processes > 1:
        jax.distributed.initialize(f"localhost:{port}", processes, process)
    assert len(jax.devices()) == DEVICES

    from vsr_jax.model import checkpoint_io
    from vsr_jax.model.params import ParamSpec, lookup, param_specs

    # With two processes the data axis goes across them, and the model axis stays within.
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    sizes = dict(mesh.shape)

    def sharding_of(spec: ParamSpec) -> NamedSharding:
        """As many axes as divide; the rest is held by several devices."""
        names = [RULES.get(axis or "") for axis in spec.axes]
        fits = [
            name if name and size % sizes[name] == 0 else None for name, size in zip(names, spec.shape, strict=True)
        ]
        return NamedSharding(mesh, PartitionSpec(*fits))

    read_bytes = 0
    plain_read = checkpoint_io.read_into

    def counting_read(tensor, index, part) -> None:
        nonlocal read_bytes
        read_bytes += part.nbytes
        plain_read(tensor, index, part)

    checkpoint_io.read_into = counting_read
    report = {}
    for name in ("qwen2", "qwen3_tied", "qwen3_untied", "llama"):
        config, plain = checkpoint_io.load_model(GOLDENS / name)
        read_bytes = 0
        _, params = checkpoint_io.load_model(GOLDENS / name, sharding_of=sharding_of)
        distinct = 0
        for spec in param_specs(config):
            value, expected = lookup(params, spec), np.asarray(lookup(plain, spec))
            assert value.sharding == sharding_of(spec), spec
            assert value.shape == expected.shape
            shards = {str(shard.index): shard for shard in value.addressable_shards}
            for shard in value.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), expected[shard.index])
            distinct += sum(shard.data.nbytes for shard in shards.values())
        report[name] = {"read": read_bytes, "shards": distinct}
        checkpoint_io.save_model(config, params, Path(out) / name, max_shard_bytes=40_000)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
