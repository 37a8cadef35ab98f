"""Localising a difference: along stored responses, where policies disagree, and what about their first tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa

from vsr_jax.errors import UserError
from vsr_jax.mechanism.first_token import Candidate, FirstTokens, candidate_table, first_tokens, mass_by_opening
from vsr_jax.mechanism.localize import TokenTable, check_same_tokens, teacher_force
from vsr_jax.mechanism.positions import (
    POSITION_GROUPS,
    HighPositions,
    PositionGroup,
    Ratio,
    describe_high,
    first_over_interior,
    group_means,
)
from vsr_jax.study.policy import Policy


@dataclass(frozen=True)
class FirstChoice:
    """Position 1 of one pair, over prompts, where q's first choice stands under p.

    Attributes:
      median_rank: its place; prob: mean probability; prob_top: the same renormalised within p's own top 64.
      prob_q: mean probability that q gives it; swapped: share of prompts where the first choices differ.
    """

    median_rank: float
    prob: float
    prob_top: float
    prob_q: float
    swapped: float


@dataclass(frozen=True)
class PairFindings:
    """One pair of policies along one set of responses.

    Attributes:
      groups: mean of each statistic in each position group, over prompts: `groups[group][statistic]`.
      ratio, ratio_top: first token over interior, of the exact and of the truncated JS.
      high: the tenth of positions with the highest exact JS.
      first: position 1.
      by_position, by_position_top: mean JS at each position.
      js_gap: largest and mean absolute difference of exact and truncated JS.
    """

    groups: Mapping[str, Mapping[str, float]]
    ratio: Ratio
    ratio_top: Ratio
    high: HighPositions
    first: FirstChoice
    by_position: np.ndarray
    by_position_top: np.ndarray
    js_gap: tuple[float, float]


@dataclass(frozen=True)
class Findings:
    """What was found along one set of responses.

    Attributes:
      responses: its name; prompts, count: how many.
      tokens: statistics a token.
      pairs: by (name of p, name of q).
      candidates, mass: first tokens by policy, and their probability by opening class.
    """

    responses: str
    prompts: int
    count: int
    tokens: TokenTable
    pairs: Mapping[tuple[str, str], PairFindings]
    candidates: Sequence[Candidate]
    mass: Mapping[str, tuple[float, ...]]


STATISTICS = ("js", "js_top", "kl_pq", "kl_qp", "entropy_p", "entropy_q", "swap", "prob", "rank", "overlap")
"""Columns of the group table, in order."""


def localise(
    policies: Sequence[Policy],
    table: pa.Table,
    name: str,
    positions: str,
    *,
    rows: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> Findings:
    """Compares two or three policies along the responses of a rollout table.

    Args:
      policies: the first is the one that others are compared with.
      table: of the rollout store; any policy may have sampled it.
      name: of the responses, for tables.
      positions: name of the position groups (`POSITION_GROUPS`).
      rows: responses in one pass.
      progress: called with (responses done, in all).

    Raises:
      UserError: policies of different vocabularies, responses with tokens that they do not have, or unknown groups.
    """
    if positions not in POSITION_GROUPS:
        raise UserError(f"--positions {positions}: unknown; choose one of {', '.join(POSITION_GROUPS)}")
    groups = POSITION_GROUPS[positions]
    check_same_tokens([p.name for p in policies], [p.tokenizer for p in policies], [p.config for p in policies])
    prompts, responses = table["prompt_tokens"].to_pylist(), table["tokens"].to_pylist()
    known = policies[0].config.num_tokens
    if max(max(map(max, prompts)), max(map(max, responses))) >= known:
        raise UserError(
            f"{name}: holds token ids that {policies[0].name} does not have ({known} tokens); other family?"
        )
    models = [(p.config, p.params) for p in policies]
    tokens = teacher_force(models, prompts, responses, rows=rows, progress=progress)
    ids = table["prompt_id"].to_pylist()
    order = {prompt: i for i, prompt in enumerate(dict.fromkeys(ids))}
    owner = np.array([order[prompt] for prompt in ids])
    different = list({prompt: tokens for prompt, tokens in zip(ids, prompts, strict=True)}.values())
    firsts: list[FirstTokens] = [first_tokens(p.config, p.params, different, rows=rows) for p in policies]
    means = [first.mean for first in firsts]
    begun, openings = [response[0] for response in responses], table["opening"].to_pylist()
    pairs = {
        (policies[i].name, policies[j].name): _pair(tokens, (i, j), owner, groups)
        for i, j in combinations(range(len(policies)), 2)
    }
    return Findings(
        responses=name,
        prompts=len(order),
        count=len(ids),
        tokens=tokens,
        pairs=pairs,
        candidates=candidate_table(means, begun, openings, policies[0].tokenizer),
        mass=mass_by_opening(means, begun, openings),
    )


def _pair(
    tokens: TokenTable, key: tuple[int, int], owner: np.ndarray, groups: tuple[PositionGroup, ...]
) -> PairFindings:
    found = tokens.pairs[key]
    columns = {name: np.asarray(getattr(found, name), np.float64) for name in STATISTICS if name != "swap"}
    columns["swap"] = (np.asarray(found.first_p) != np.asarray(found.first_q)).astype(float)
    by_group = {name: group_means(tokens, columns[name], owner, groups) for name in STATISTICS}
    js, top = columns["js"], columns["js_top"]
    start = tokens.position == 1
    # All samples of a prompt share the first position; one of them stands for the prompt.
    _, once = np.unique(owner[tokens.response[start]], return_index=True)
    at_first = {name: values[start][once] for name, values in columns.items()}
    prob_top, prob_q = (np.asarray(values)[start][once] for values in (found.prob_top, found.prob_q))
    count = np.bincount(tokens.position)[1:]
    return PairFindings(
        groups={
            group.name: {name: _mean(values[:, i]) for name, values in by_group.items()}
            for i, group in enumerate(groups)
        },
        ratio=first_over_interior(by_group["js"], groups),
        ratio_top=first_over_interior(by_group["js_top"], groups),
        high=describe_high(tokens, found, groups),
        first=FirstChoice(
            median_rank=float(np.median(at_first["rank"])),
            prob=float(at_first["prob"].mean()),
            prob_top=float(prob_top.mean()),
            prob_q=float(prob_q.mean()),
            swapped=float(at_first["swap"].mean()),
        ),
        by_position=np.bincount(tokens.position, js)[1:] / count,
        by_position_top=np.bincount(tokens.position, top)[1:] / count,
        js_gap=(float(np.abs(js - top).max()), float(np.abs(js - top).mean())),
    )


def _mean(values: np.ndarray) -> float:
    """Over prompts that have the group; NaN where none has."""
    held = values[~np.isnan(values)]
    return float(held.mean()) if len(held) else float("nan")
