"""TRL's own GRPO trainer on the work of `benchmarks/update.py`, in an environment of its own with torch and trl.

Only the rollouts are given; loss, gradient, clipping and optimizer are the trainer's, timed from the beginning of a
step to its end.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from update_work import update_work


class Clock(TrainerCallback):
    """Seconds of each optimizer step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *args, **kwargs) -> None:
        self.began = time.monotonic()

    def on_step_end(self, *args, **kwargs) -> None:
        self.seconds.append(time.monotonic() - self.began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--parts", type=int, default=4, help="micro-batches")
    parser.add_argument("--keep", action="store_true", help="keep activations instead of recomputing them")
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()
    work = update_work(tokens=args.tokens)
    prompts, group = work.advantages.shape
    rows = prompts * group
    responses = torch.tensor(work.responses.reshape(rows, -1), dtype=torch.long)
    fixed = {
        "prompt_ids": torch.tensor(work.prompts, dtype=torch.long).repeat_interleave(group, 0),
        "completion_ids": responses,
        "completion_mask": torch.ones_like(responses),
        "advantages": torch.tensor(work.advantages.reshape(-1)),
        "old_per_token_logps": torch.full(responses.shape, -12.0),
    }
    fixed["prompt_mask"] = torch.ones_like(fixed["prompt_ids"])

    class Fixed(GRPOTrainer):
        """The trainer, given its rollouts."""

        def _generate_and_score_completions(self, inputs):
            return {**fixed, "num_items_in_batch": fixed["completion_mask"].sum()}

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=rows // args.parts,
            gradient_accumulation_steps=args.parts,
            gradient_checkpointing=not args.keep,
            num_generations=group,
            max_completion_length=args.tokens,
            max_steps=args.repeats,
            learning_rate=1e-6,
            beta=0.0,
            epsilon_high=0.28,
            loss_type="dapo",
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Fixed(
            AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["x"] * rows}),
            processing_class=AutoTokenizer.from_pretrained(args.model),
            callbacks=[clock],
        )
        trainer.train()
    result = {
        "who": "trl",
        "seconds": clock.seconds,
        "tokens": int(fixed["prompt_ids"].numel() + responses.numel()),
        "checkpointing": not args.keep,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "versions": f"trl {trl.__version__}, transformers {transformers.__version__}, torch {torch.__version__}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
