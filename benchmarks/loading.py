"""Peak host memory and time of loading a model: `python benchmarks/loading.py MODEL_DIR [--dtype bfloat16]`.

Reports what the process held at most above what it held with JAX started, against the bound of parameters plus the
largest tensor plus 200 MB. Linux only: the peak is the kernel's high-water mark of this process.
"""

import argparse
import math
import resource
import time
from pathlib import Path

import jax
import numpy as np

from vsr_jax.model.checkpoint_io import load_model
from vsr_jax.model.config import parse_config, read_config
from vsr_jax.model.params import param_count
from vsr_jax.model.weight_files import DTYPES, stored_tensors


def peak() -> int:
    """Bytes resident at most so far, pages of mapped files included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident() -> int:
    """Bytes resident now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    args = parser.parse_args()

    jax.block_until_ready(jax.device_put(np.zeros(16)))
    before = resident()
    stored = stored_tensors(args.model).values()
    largest = max(math.prod(t.shape) * DTYPES[t.dtype].itemsize for t in stored)
    began = time.monotonic()
    _, params = load_model(args.model, args.dtype)
    seconds, used = time.monotonic() - began, peak() - before

    held = sum(x.nbytes for x in jax.tree.leaves(params))
    assert held == param_count(parse_config(read_config(args.model / "config.json"))) * np.dtype(args.dtype).itemsize
    bound = held + largest + 200_000_000
    print(
        f"{args.model.name} as {args.dtype}: {seconds:.1f} s; parameters {held / 1e6:.0f} MB, largest stored tensor "
        f"{largest / 1e6:.0f} MB; peak {used / 1e6:.0f} MB above the start, bound {bound / 1e6:.0f} MB"
    )
    if used > bound:
        raise SystemExit("the peak is above the bound")


if __name__ == "__main__":
    main()
