"""Run as one of several processes: RLVR steps on the micro Base over all of them; process 0 prints metrics as JSON.

process_worker.py MODE      with VSR_COORDINATOR, VSR_PROCESSES and VSR_PROCESS set, or none of them
"""

import dataclasses
import json
import sys

import jax
import numpy as np

from vsr_jax.data import micro
from vsr_jax.data.micro import BASE
from vsr_jax.errors import UserError
from vsr_jax.judging import judge
from vsr_jax.objectives.advantages import group_advantages
from vsr_jax.objectives.policy import grpo
from vsr_jax.parallel.distributed import agree, barrier, gather_rows, local_rows, on_this_process, place_host, start
from vsr_jax.parallel.mesh import make_mesh
from vsr_jax.parallel.rules import batch_shardings, keep_placed, state_shardings
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import SamplingParams
from vsr_jax.study.policy import load_policy
from vsr_jax.training.batches import grouped_batch
from vsr_jax.training.on_policy import rewards_of
from vsr_jax.training.step import adamw, init_state, make_update

PROMPTS, SAMPLES = 4, 4


def train() -> None:
    policy = load_policy(BASE, name="Base")
    config = policy.config
    rows = micro.instruction_rows(micro.DEFAULT, 0, PROMPTS)
    prompts = [policy.encode(row, "micro") for row in rows]
    agree("prompts", prompts)
    optimizer = adamw(1e-3)
    mesh = make_mesh({"fsdp": -1})
    state = init_state(policy.params, optimizer)
    shardings = state_shardings(config, state, mesh)
    update = keep_placed(make_update(config, grpo(), optimizer), shardings)
    state = place_host(state, shardings)
    mine = local_rows(PROMPTS)
    lines = []
    for step in range(2):
        request = SamplingParams(SAMPLES, 16, stop_ids=policy.stop_ids)
        ids = [step * PROMPTS + i for i in mine]
        rollouts = sample(
            config, on_this_process(state.params), [prompts[i] for i in mine], request, seed=3, prompt_ids=ids
        )
        # Verified where they were sampled; what travels is numbers.
        judged = judge([rows[i] for i in mine], rollouts, policy.tokenizer)
        width = max(map(len, prompts))
        padding = ((0, 0), (0, width - rollouts.prompt_tokens.shape[1]))
        own = {f.name: getattr(rollouts, f.name) for f in dataclasses.fields(rollouts)}
        own["prompt_tokens"] = np.pad(rollouts.prompt_tokens, padding)
        own["prompt_index"] = rollouts.prompt_index + mine.start
        every, rewards = gather_rows((own, rewards_of(judged, "fraction", len(mine))))
        whole = dataclasses.replace(rollouts, **every)
        batch = grouped_batch(whole, group_advantages(rewards), drop_silent=False)
        batch = place_host(batch, batch_shardings(batch, mesh))
        state, metrics = update(state, batch)
        numbers = {name: float(value) for name, value in jax.device_get(metrics).items()}
        lines.append({"reward": float(rewards.mean()), "tokens_sum": int(whole.tokens.sum()), **numbers})
        barrier(f"step {step}", timeout_s=120)
    if jax.process_index() == 0:
        print(json.dumps(lines), flush=True)


def main() -> None:
    try:
        start(timeout_s=120)
        if sys.argv[1] == "train":
            train()
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
