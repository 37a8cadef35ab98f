"""tunix's own Sampler on our workloads, in an environment of its own: `pip install google-tunix`.

Prompts go in as ids: the tokenizer below looks them up. Its prefill and decode are compiled in a first call.
"""

import argparse
import dataclasses
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.qwen2 import params as loading
from tunix.models.qwen2.model import ModelConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workloads import workload


class Ids:
    """Strings are numbers of prompts."""

    def __init__(self, prompts: list[list[int]]):
        self.prompts = prompts

    def encode(self, text: str) -> list[int]:
        return self.prompts[int(text)]

    def decode(self, ids: list[int]) -> str:
        return ""

    def bos_id(self) -> int:
        return 0

    def eos_id(self) -> int:
        return 151645

    def pad_id(self) -> int:
        return 151643


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--workload", default="group")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    work = workload(args.workload)
    published = json.loads((Path(args.model) / "config.json").read_text())
    config = dataclasses.replace(
        ModelConfig.qwen2p5_0p5b(), use_tied_embedding=published.get("tie_word_embeddings", False)
    )
    mesh = jax.make_mesh((1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    with mesh:
        model = loading.create_model_from_safe_tensors(args.model, config, mesh, dtype=jnp.float32)
        width = 1 << (max(map(len, work.prompts)) - 1).bit_length()
        cache = CacheConfig(width + work.max_tokens, config.num_layers, config.num_kv_heads, config.head_dim)
        sampler = Sampler(model, Ids(work.prompts), cache)
        rows = [str(i) for i in range(len(work.prompts)) for _ in range(work.n)]
        seconds, cpu, tokens = [], [], 0
        for i in range(args.repeats + 1):
            began, used = time.monotonic(), time.process_time()
            out = sampler(
                rows, work.max_tokens, width, temperature=1.0, top_p=1.0, seed=i,
                eos_tokens=[151643, 151645] if work.stop else [-1],
            )  # fmt: skip
            seconds.append(time.monotonic() - began)
            cpu.append(time.process_time() - used)
            tokens = sum(min(len(row) + 1, work.max_tokens) if work.stop else len(row) for row in out.tokens)
    best = float(np.min(seconds[1:]))
    result = {
        "who": f"tunix {version('google-tunix')}",
        "workload": args.workload,
        "compile_s": seconds[0] - best,
        "seconds": seconds[1:],
        "cpu_s": cpu[1:],
        "new_tokens": tokens,
        "tokens_per_s": tokens / best,
        "jax": jax.__version__,
    }
    print(json.dumps(result) if args.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
