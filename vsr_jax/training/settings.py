"""Hyper-parameters of the training loops. Without JAX, so that the command line can show them at once."""

from dataclasses import dataclass
from typing import Literal

from vsr_jax.errors import UserError


@dataclass(frozen=True)
class RlvrSettings:
    """Hyper-parameters of an RLVR run.

    Attributes:
      steps: rollout batches; each is followed by one update, or by prompts / mini_prompts of them.
      prompts: prompts a step.
      samples: responses a prompt (the group).
      max_tokens: longest response in tokens.
      temperature: of the rollouts; the loss scores the policy at it.
      top_p: of the rollouts; 1.0 is on-policy, the paper's authors used 0.7.
      rounds: batches of prompts sampled a step at most. Above 1, groups whose rewards are all equal are replaced by
        further prompts (dynamic sampling).
      mini_prompts: prompts an update; the old log-probabilities are those before the step's first. 0 takes all.
      reward: `all` pays 1 when every constraint holds; `fraction` pays the share that holds.
      require_stop: a response cut at the length limit earns 0.
      overlong_buffer: width in tokens of a penalty that grows to -1 at the length limit; 0 leaves it out.
      extract: where a math answer is looked for: auto, boxed or answer_line.
      advantage: grpo (see std), rloo, reinforce++ or reinforce++_baseline.
      std: advantage grpo divided by the group's population or sample deviation, or none (Dr.GRPO).
      loss: grpo, gspo, cispo or reinforce.
      reducer: how tokens are averaged; constant_length divides by max_tokens.
      clip_low: how far the probability ratio may fall before its gradient is cut; for grpo.
      clip_high: how far it may rise.
      old_logp: whose log-probability is the ratio's denominator: the sampler's, the trainer's (recomputed before the
        first update), or auto, which recomputes where the sampler's is not the policy's or importance asks for it.
      importance: weights tokens by the trainer's over the sampler's probability, of its raw or warped distribution.
      importance_cap: largest such weight.
      kl_coef: weight of the penalty to the starting policy; 0 leaves it out.
      kl_estimator: k1, k2 or k3, in the loss.
      kl_metric: report the KL to the starting policy although kl_coef is 0; a forward pass a step, and the memory
        of the starting policy.
      entropy_coef: weight of the entropy bonus.
      learning_rate: of AdamW.
      warmup: updates of linear warm-up.
      schedule: constant after it, or a cosine to zero at the last update.
      weight_decay: of AdamW; norms and biases do not decay.
      clip_norm: of the global gradient norm.
      micro_prompts: prompts differentiated at a time; changes memory, not results.
      checkpoint_every: steps between checkpoints.
      keep: newest checkpoints that stay.
      keep_every: checkpoints of steps divisible by it stay for good; 0 keeps none.
      patience: updates skipped for a non-finite gradient, in all, that stop the run.
      seed: of prompt order and sampling.
    """

    steps: int = 40
    prompts: int = 16
    samples: int = 16
    max_tokens: int = 48
    temperature: float = 1.0
    top_p: float = 1.0
    rounds: int = 1
    mini_prompts: int = 0
    reward: Literal["all", "fraction"] = "all"
    require_stop: bool = False
    overlong_buffer: int = 0
    extract: Literal["auto", "boxed", "answer_line"] = "auto"
    advantage: Literal["grpo", "rloo", "reinforce++", "reinforce++_baseline"] = "grpo"
    std: Literal["population", "sample", "none"] = "population"
    loss: Literal["grpo", "gspo", "cispo", "reinforce"] = "grpo"
    reducer: Literal["token_mean", "sequence_mean", "constant_length"] = "token_mean"
    clip_low: float = 0.2
    clip_high: float = 0.28
    old_logp: Literal["auto", "sampler", "trainer"] = "auto"
    importance: Literal["none", "raw", "warped"] = "none"
    importance_cap: float = 2.0
    kl_coef: float = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k2"
    kl_metric: bool = False
    entropy_coef: float = 0.0
    learning_rate: float = 1e-6
    warmup: int = 0
    schedule: Literal["constant", "cosine"] = "constant"
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    micro_prompts: int = 4
    checkpoint_every: int = 10
    keep: int = 2
    keep_every: int = 0
    patience: int = 3
    seed: int = 0

    @property
    def updates(self) -> int:
        """Updates a step."""
        return self.prompts // self.mini_prompts if self.mini_prompts else 1

    def check(self) -> None:
        """Raises UserError, naming the field, where settings contradict each other."""
        if self.mini_prompts and self.prompts % self.mini_prompts:
            raise UserError(
                f"mini_prompts is {self.mini_prompts}, which does not divide prompts, {self.prompts}; choose a divisor"
            )
        for name in (
            "steps",
            "prompts",
            "samples",
            "max_tokens",
            "rounds",
            "micro_prompts",
            "checkpoint_every",
            "keep",
        ):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.overlong_buffer <= self.max_tokens:
            raise UserError(
                f"overlong_buffer is {self.overlong_buffer}; it must lie between 0 and max_tokens, {self.max_tokens}"
            )
        if self.importance != "none" and self.old_logp == "sampler":
            raise UserError("importance compares the trainer with the sampler; set old_logp to trainer or auto")
        if self.importance == "raw" and self.temperature != 1:
            raise UserError(
                f"importance is raw, which the sampler records at temperature 1, and temperature is "
                f"{self.temperature}; use warped"
            )
        if self.old_logp == "sampler" and self.temperature != 1 and self.top_p != 1:
            raise UserError(
                "old_logp is sampler, whose log-probability at temperature "
                f"{self.temperature} includes the truncation of top_p {self.top_p}; use auto or trainer"
            )

    @property
    def recompute_old(self) -> bool:
        """Whether the old log-probabilities are recomputed by the trainer."""
        if self.old_logp != "auto":
            return self.old_logp == "trainer"
        return self.importance != "none" or (self.temperature != 1 and self.top_p != 1)


@dataclass(frozen=True)
class OpdSettings:
    """Hyper-parameters of on-policy distillation: the student samples, the teacher scores.

    Attributes:
      steps: rollout batches; each is followed by one update, or by prompts / mini_prompts of them.
      prompts: prompts a step.
      mini_prompts: prompts an update; the old log-probabilities are those before the step's first. 0 takes all.
      samples: responses a prompt.
      max_tokens: longest response in tokens.
      loss: top_k (advantages on the student's k likeliest tokens), sampled (on the sampled token), or full-vocabulary
        reverse KL(student || teacher), forward KL(teacher || student) or jsd.
      top_k: k of the loss top_k.
      learning_rate: of AdamW.
      clip_norm: of the global gradient norm.
      micro_prompts: prompts differentiated at a time; changes memory, not results.
      checkpoint_every: steps between checkpoints.
      keep: newest checkpoints that stay.
      keep_every: checkpoints of steps divisible by it stay for good; 0 keeps none.
      require_stop: counts in the reported reward only.
      extract: where a math answer is looked for, in the reported reward only.
      seed: of prompt order and sampling.
    """

    steps: int = 50
    prompts: int = 16
    mini_prompts: int = 0
    samples: int = 4
    max_tokens: int = 1024
    loss: Literal["top_k", "sampled", "reverse", "forward", "jsd"] = "top_k"
    top_k: int = 16
    learning_rate: float = 1e-6
    clip_norm: float = 1.0
    micro_prompts: int = 4
    checkpoint_every: int = 10
    keep: int = 2
    keep_every: int = 0
    require_stop: bool = False
    extract: Literal["auto", "boxed", "answer_line"] = "auto"
    seed: int = 0

    @property
    def several(self) -> bool:
        """Whether a step has several updates."""
        return 0 < self.mini_prompts < self.prompts


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
      checkpoint_every: steps between checkpoints, where checkpoints are asked for.
      keep: newest checkpoints that stay.
      remat: recompute layer activations in the backward pass; less memory, more time.
    """

    steps: int = 100
    rows: int = 16
    width: int = 96
    learning_rate: float = 1e-5
    hold: float = 1.0
    weight_decay: float = 0.0
    beta2: float = 0.98
    clip_norm: float = 1.0
    checkpoint_every: int = 100
    keep: int = 2
    remat: bool = False
