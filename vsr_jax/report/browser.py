"""The rollout browser: pick a bucket-transition cell, a prompt and a policy, and read the responses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vsr_jax.report.blocks import Browser, Prose, Section
from vsr_jax.report.colours import BUCKET_COLOURS, BUCKET_TITLES
from vsr_jax.support import pass_buckets

MARKS = ("", "forced", "high_js")
_REQUIRED = ("policy", "prompt_id", "prompt", "sample_id", "text", "passed")


def browser_section(
    rollouts: Iterable[Mapping[str, Any]],
    *,
    heading: str = "Rollout browser",
    intro: str = "",
    asked: int | None = None,
    max_chars: int = 6000,
) -> Section:
    """A section with a browser over rollouts.

    Args:
      rollouts: one mapping a response, in any order, with
        `policy`, `prompt_id`, `prompt`, `sample_id`, `text`;
        `passed`: bool, or None where the response has no verdict;
        and, where known, `opening`, `status` (of the verdict), `finish_reason`;
        `constraints`: pairs (name, held);
        `segments`: pairs (text, mark) that spell out `text`, where a mark is "", "forced" or "high_js".
      heading, intro: of the section.
      asked: samples asked for a prompt; a prompt with fewer under some policy is incomplete there. Defaults to the
        most that any prompt has.
      max_chars: longer responses are cut, and say so.

    Raises:
      ValueError: no rollouts, a missing field, a sample given twice, segments that do not spell out the text, or an
        unknown mark.
    """
    rows = [_checked(row) for row in rollouts]
    if not rows:
        raise ValueError("the rollout browser needs at least one rollout")
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    prompts = list(dict.fromkeys(row["prompt_id"] for row in rows))
    texts = {row["prompt_id"]: row["prompt"] for row in rows}
    grouped: dict[tuple[str, str], list[Mapping[str, Any]]] = {(p, q): [] for p in policies for q in prompts}
    for row in rows:
        grouped[row["policy"], row["prompt_id"]].append(row)
    for (policy, prompt), group in grouped.items():
        group.sort(key=lambda row: row["sample_id"])
        if len({row["sample_id"] for row in group}) < len(group):
            raise ValueError(f"policy {policy!r} has a sample of prompt {prompt!r} twice")
    samples = asked or max(len(group) for group in grouped.values())
    buckets = {
        policy: pass_buckets(
            [_marks(grouped[policy, prompt], samples) for prompt in prompts], names=prompts, asked=samples
        ).labels
        for policy in policies
    }
    data = {
        "titles": BUCKET_TITLES,
        "colours": BUCKET_COLOURS,
        "policies": policies,
        "prompts": [
            {
                "id": prompt,
                "text": texts[prompt],
                "buckets": [buckets[policy][i] for policy in policies],
                "passes": [_passes(grouped[policy, prompt]) for policy in policies],
                "responses": [[_response(row, max_chars) for row in grouped[policy, prompt]] for policy in policies],
            }
            for i, prompt in enumerate(prompts)
        ],
    }
    return Section(heading, [*([Prose(intro)] if intro else []), Browser(data)])


def _checked(row: Mapping[str, Any]) -> Mapping[str, Any]:
    lacking = [field for field in _REQUIRED if field not in row]
    if lacking:
        raise ValueError(f"a rollout lacks the field {lacking[0]!r}")
    segments = row.get("segments")
    if segments is not None:
        where = f"sample {row['sample_id']} of prompt {row['prompt_id']!r}"
        if "".join(text for text, _ in segments) != row["text"]:
            raise ValueError(f"{where}: segments do not spell out the text")
        strange = {mark for _, mark in segments} - set(MARKS)
        if strange:
            raise ValueError(f"{where}: unknown mark {sorted(strange)[0]!r}; known: {', '.join(MARKS[1:])}")
    return row


def _marks(group: Sequence[Mapping[str, Any]], samples: int) -> list[float]:
    marks = [np.nan if row["passed"] is None else float(row["passed"]) for row in group]
    if len(marks) > samples:
        raise ValueError(f"prompt {group[0]['prompt_id']!r} has {len(marks)} samples but only {samples} were asked")
    return marks + [np.nan] * (samples - len(marks))


def _passes(group: Sequence[Mapping[str, Any]]) -> list[int]:
    """Passing responses, and responses with a verdict."""
    verdicts = [bool(row["passed"]) for row in group if row["passed"] is not None]
    return [sum(verdicts), len(verdicts)]


def _response(row: Mapping[str, Any], max_chars: int) -> dict[str, Any]:
    """What the page shows of a response; fields without a value are left out."""
    text = row["text"]
    shown: dict[str, Any] = {
        "sample": row["sample_id"],
        "passed": None if row["passed"] is None else bool(row["passed"]),
        "opening": row.get("opening"),
        "status": row.get("status"),
        "finish": row.get("finish_reason"),
        "constraints": [[name, bool(held)] for name, held in row.get("constraints") or ()],
        "cut": max(0, len(text) - max_chars),
    }
    if row.get("segments") is None:
        shown["text"] = text[:max_chars]
    else:
        shown["segments"] = _cut(row["segments"], max_chars)
    return {name: value for name, value in shown.items() if value or name in ("sample", "passed", "text")}


def _cut(segments: Sequence[tuple[str, str]], max_chars: int) -> list[list[str]]:
    """The first `max_chars` characters; neighbours with one mark become one segment."""
    kept: list[list[str]] = []
    left = max_chars
    for text, mark in segments:
        piece = text[:left]
        left -= len(piece)
        if kept and kept[-1][1] == mark:
            kept[-1][0] += piece
        elif piece:
            kept.append([piece, mark])
    return kept
