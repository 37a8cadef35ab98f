"""The reference implementation's `generate` on our workloads, in an environment of its own with torch."""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workloads import workload


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--workload", default="group")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    work = workload(args.workload)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model.eval()
    width = max(map(len, work.prompts))
    # Left padding and one row a sample, which is what num_return_sequences makes of a batch too.
    ids = torch.tensor([[0] * (width - len(p)) + p for p in work.prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in work.prompts])
    stops = [151643, 151645] if work.stop else None
    least = None if work.stop else work.max_tokens
    seconds, cpu, tokens = [], [], 0
    for i in range(args.repeats):
        torch.manual_seed(i)
        began, used = time.monotonic(), time.process_time()
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                num_return_sequences=work.n,
                max_new_tokens=work.max_tokens,
                min_new_tokens=least,
                eos_token_id=stops,
                pad_token_id=151643,
            )
        seconds.append(time.monotonic() - began)
        cpu.append(time.process_time() - used)
        new = out[:, width:]
        ended = torch.isin(new, torch.tensor(stops or [-1])).long()
        tokens = int(((ended.cumsum(1) - ended) == 0).sum())
    best = min(seconds)
    result = {
        "who": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "workload": args.workload,
        "seconds": seconds,
        "cpu_s": cpu,
        "new_tokens": tokens,
        "tokens_per_s": tokens / best,
    }
    print(json.dumps(result) if args.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
