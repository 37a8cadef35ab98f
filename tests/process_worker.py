"""Run as one of several processes: RLVR on the micro Base over all of them; process 0 prints its metrics as JSON.

process_worker.py MODE [OUT]      with VSR_COORDINATOR, VSR_PROCESSES and VSR_PROCESS set, or none of them
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
from tiny_study import tiny_preset

from vsr_jax.data import micro
from vsr_jax.data.micro import BASE
from vsr_jax.errors import UserError
from vsr_jax.parallel.distributed import agree, barrier, start
from vsr_jax.study.policy import load_policy
from vsr_jax.study.runs import run_stages
from vsr_jax.study.study_run import study_stages
from vsr_jax.training.checkpoint import read_metrics
from vsr_jax.training.on_policy import train_rlvr
from vsr_jax.training.settings import RlvrSettings

SETTINGS = RlvrSettings(
    steps=2,
    prompts=4,
    samples=4,
    max_tokens=16,
    learning_rate=1e-3,
    kl_coef=0.05,
    mini_prompts=2,
    micro_prompts=2,
    checkpoint_every=1,
    reward="fraction",
    extract="boxed",
    seed=3,
)


def train(out: Path) -> None:
    policy = load_policy(BASE, name="Base")
    train_rlvr(
        policy.config,
        policy.params,
        micro.instruction_rows(micro.DEFAULT, 0, 5),
        lambda row: policy.encode(row, "micro"),
        policy.tokenizer,
        policy.stop_ids,
        SETTINGS,
        out,
    )
    if jax.process_index() == 0:
        print(json.dumps(read_metrics(out / "metrics.jsonl")), flush=True)


def study(out: Path) -> None:
    """Training, measuring, localising and forcing: each kind of stage once."""
    preset = replace(tiny_preset(), mesh="fsdp=-1", sweep=())
    run_stages(study_stages(preset, [0], ("localize-micro_math", "force-base-*")), out, wait_s=0.1)


def main() -> None:
    try:
        start(timeout_s=120)
        if sys.argv[1] == "train":
            train(Path(sys.argv[2]))
        elif sys.argv[1] == "study":
            study(Path(sys.argv[2]))
        elif sys.argv[1] == "disagree":
            agree("the order", list(range(3 + jax.process_index())))
        elif jax.process_index() == 1:
            barrier("meeting", timeout_s=2)  # the other one never comes
        else:
            barrier("end", timeout_s=60)
    except UserError as error:
        print(f"error: {error}", flush=True)
    if sys.argv[1] == "missing" and jax.process_index() == 1:
        barrier("end", timeout_s=60)


if __name__ == "__main__":
    main()
