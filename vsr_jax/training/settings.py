"""Hyper-parameters of the training loops. Without JAX, so that the command line can show them at once."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RlvrSettings:
    """Hyper-parameters of an RLVR run.

    Attributes:
      steps: optimizer steps, one on-policy update each.
      prompts: prompts a step.
      samples: responses a prompt (the group).
      max_tokens: longest response in tokens.
      temperature: of the rollouts; the loss scores the policy at it.
      top_p: of the rollouts; 1.0 is on-policy, the paper's authors used 0.7.
      reward: `all` pays 1 when every constraint holds; `fraction` pays the share that holds.
      require_stop: a response cut at the length limit earns 0.
      extract: where a math answer is looked for: auto, boxed or answer_line.
      std: advantage divided by the group's population or sample deviation, or none.
      clip_low: how far the probability ratio may fall before its gradient is cut.
      clip_high: how far it may rise.
      kl_coef: weight of the penalty to the starting policy; 0 leaves it out.
      kl_estimator: k1, k2 or k3, in the loss.
      learning_rate: of AdamW.
      warmup: steps of linear warm-up.
      weight_decay: of AdamW; norms and biases do not decay.
      clip_norm: of the global gradient norm.
      micro_prompts: prompts differentiated at a time; changes memory, not results.
      checkpoint_every: steps between checkpoints.
      patience: updates skipped for a non-finite gradient, in all, that stop the run.
      seed: of prompt order and sampling.
    """

    steps: int = 40
    prompts: int = 16
    samples: int = 16
    max_tokens: int = 48
    temperature: float = 1.0
    top_p: float = 1.0
    reward: Literal["all", "fraction"] = "all"
    require_stop: bool = False
    extract: Literal["auto", "boxed", "answer_line"] = "auto"
    std: Literal["population", "sample", "none"] = "population"
    clip_low: float = 0.2
    clip_high: float = 0.28
    kl_coef: float = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k2"
    learning_rate: float = 1e-6
    warmup: int = 0
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    micro_prompts: int = 4
    checkpoint_every: int = 10
    patience: int = 3
    seed: int = 0


@dataclass(frozen=True)
class OpdSettings:
    """Hyper-parameters of on-policy distillation: the student samples, the teacher scores.

    Attributes:
      steps: optimizer steps, one on-policy update each.
      prompts: prompts a step.
      samples: responses a prompt.
      max_tokens: longest response in tokens.
      loss: top_k (advantages on the student's k likeliest tokens), sampled (on the sampled token), or full-vocabulary
        reverse KL(student || teacher), forward KL(teacher || student) or jsd.
      top_k: k of the loss top_k.
      learning_rate: of AdamW.
      clip_norm: of the global gradient norm.
      micro_prompts: prompts differentiated at a time; changes memory, not results.
      checkpoint_every: steps between checkpoints.
      require_stop: counts in the reported reward only.
      extract: where a math answer is looked for, in the reported reward only.
      seed: of prompt order and sampling.
    """

    steps: int = 50
    prompts: int = 16
    samples: int = 4
    max_tokens: int = 1024
    loss: Literal["top_k", "sampled", "reverse", "forward", "jsd"] = "top_k"
    top_k: int = 16
    learning_rate: float = 1e-6
    clip_norm: float = 1.0
    micro_prompts: int = 4
    checkpoint_every: int = 10
    require_stop: bool = False
    extract: Literal["auto", "boxed", "answer_line"] = "auto"
    seed: int = 0


@dataclass(frozen=True)
class SftSettings:
    """Hyper-parameters of a supervised run.

    Attributes:
      steps: optimizer steps.
      rows: packed rows a step.
      width: tokens a row.
      learning_rate: of AdamW; constant for the first `hold` share of the steps, then linear to zero.
      hold: that share; 1 keeps the rate constant.
      weight_decay: of AdamW; norms and biases do not decay.
      beta2: of AdamW.
      clip_norm: of the global gradient norm.
    """

    steps: int = 100
    rows: int = 16
    width: int = 96
    learning_rate: float = 1e-5
    hold: float = 1.0
    weight_decay: float = 0.0
    beta2: float = 0.98
    clip_norm: float = 1.0
