"""From verdict statuses to pass marks, without losing sight of what is not there.

A zero from a broken pipe and a zero from a bad model must look different: accuracy never travels without the share
of responses that held an answer at all, and prompts that lack responses are named.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STATUSES = ("correct", "wrong", "no_answer", "truncated", "timeout", "error")
NO_VERDICT = frozenset({"timeout", "error"})
LOW_EXTRACTION = 0.5


@dataclass(frozen=True)
class Account:
    """One policy's verdicts on one benchmark.

    Attributes:
      names: prompts, in the order asked.
      passes: float64[prompts, asked]; 1 correct, 0 not, NaN where there is no verdict or no response.
      statuses: how many responses had each status.
      missing: prompts with fewer responses than asked, and how many are missing.
      accuracy: correct over all samples asked for; a missing response counts as failed, time-outs and checker errors
        are left out. NaN when nothing remains.
      extraction_rate: share of responses with a verdict in which an answer was found; NaN when there are none.
    """

    names: tuple[str, ...]
    passes: NDArray[np.float64]
    statuses: Mapping[str, int]
    missing: Mapping[str, int]
    accuracy: float
    extraction_rate: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences to print beside the accuracy; empty when all is well."""
        notes = []
        if not self.extraction_rate >= LOW_EXTRACTION:
            found = (
                "no response has a verdict"
                if np.isnan(self.extraction_rate)
                else (f"only {self.extraction_rate:.1%} of responses held an answer")
            )
            notes.append(f"{found}: look at the responses before believing the accuracy")
        if self.missing:
            lacking = ", ".join(f"{name} ({count})" for name, count in self.missing.items())
            notes.append(f"{sum(self.missing.values())} responses are missing and counted as failed: {lacking}")
        unjudged = sum(self.statuses[status] for status in NO_VERDICT)
        if unjudged:
            notes.append(f"{unjudged} responses have no verdict (time-out or checker error) and are left out")
        return tuple(notes)


def account(statuses: Mapping[str, Sequence[str]], prompts: Sequence[str], asked: int) -> Account:
    """Lays verdict statuses out as pass marks.

    Args:
      statuses: for each prompt, its samples' statuses in sample order; a prompt may be absent.
      prompts: names of all prompts of the benchmark, in order.
      asked: samples asked for a prompt.

    Raises:
      ValueError: no prompts, a repeated or unknown prompt, an unknown status, or more samples than asked.
    """
    names = tuple(prompts)
    if not names or asked < 1:
        raise ValueError(f"need at least one prompt and one sample asked, got {len(names)} prompts and {asked} samples")
    if len(set(names)) != len(names):
        raise ValueError(f"prompt names must differ, got {Counter(names).most_common(1)[0][0]!r} more than once")
    strangers = sorted(set(statuses) - set(names))
    if strangers:
        raise ValueError(f"responses to {strangers[0]!r}, which is not among the {len(names)} prompts")
    passes = np.full((len(names), asked), np.nan)
    tally: Counter[str] = Counter()
    missing = {}
    for row, name in enumerate(names):
        seen = statuses.get(name, ())
        if len(seen) > asked:
            raise ValueError(f"prompt {name!r} has {len(seen)} responses but only {asked} were asked")
        if len(seen) < asked:
            missing[name] = asked - len(seen)
        for column, status in enumerate(seen):
            if status not in STATUSES:
                raise ValueError(f"unknown verdict status {status!r} of prompt {name!r}; known: {', '.join(STATUSES)}")
            tally[status] += 1
            if status not in NO_VERDICT:
                passes[row, column] = float(status == "correct")
    judged = sum(count for status, count in tally.items() if status not in NO_VERDICT)
    claimed = judged + sum(missing.values())
    return Account(
        names=names,
        passes=passes,
        statuses={status: tally[status] for status in STATUSES},
        missing=missing,
        accuracy=tally["correct"] / claimed if claimed else float("nan"),
        extraction_rate=(tally["correct"] + tally["wrong"]) / judged if judged else float("nan"),
    )
