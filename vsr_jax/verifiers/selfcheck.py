"""How far our math verdicts agree with recorded opinions on pairs of gold answer and response."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsr_jax.errors import UserError
from vsr_jax.verifiers.math import check_math

FILE = "math_equivalence_dev.jsonl"
OURS = "vsr_jax"
_FIELDS = ("id", "gold", "gold_class", "transform", "intended", "response", "verdicts")


@dataclass(frozen=True)
class MathComparison:
    """One recorded pair and what graders say of it.

    Attributes:
      key: the pair's id.
      group: the kind of gold answer.
      transform: how the response was made from the gold.
      intended: whether the response is right; None where that is a matter of opinion.
      verdicts: grader name to verdict; ours is under `OURS`.
    """

    key: str
    group: str
    transform: str
    gold: str
    response: str
    intended: bool | None
    verdicts: dict[str, bool]


def math_comparisons(path: str | Path) -> Iterator[MathComparison]:
    """Every recorded pair with our verdict beside those of the recorded graders.

    Args:
      path: a JSONL file with the fields id, gold, gold_class, transform, intended, response and verdicts.

    Raises:
      UserError: the file is absent, or a line is not a record.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; give the directory of the recorded verdicts")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except ValueError:
                raise UserError(f"{path}, line {number}: not JSON; restore the file") from None
            missing = [field for field in _FIELDS if field not in row]
            if missing:
                raise UserError(f"{path}, line {number}: no field `{missing[0]}`; restore the file")
            ours = check_math(row["gold"], row["response"]).passed
            verdicts = {OURS: ours, **{name: bool(verdict) for name, verdict in row["verdicts"].items()}}
            yield MathComparison(
                row["id"], row["gold_class"], row["transform"], row["gold"], row["response"], row["intended"], verdicts
            )


def agreement_tables(oracle_dir: str | Path) -> list[dict[str, Any]]:
    """Agreement of each grader with the intended verdict, by kind of gold answer, then over all.

    Args:
      oracle_dir: the directory that holds `math_equivalence_dev.jsonl`.

    Returns:
      Dicts with `group`, `rows` (pairs whose intended verdict is settled), and for each grader its share of
      agreement in [0, 1]; the last one has the group `all` and also `left_out`, the pairs of debatable verdict.

    Raises:
      UserError: as `math_comparisons`.
    """
    items = list(math_comparisons(Path(oracle_dir) / FILE))
    settled = [item for item in items if item.intended is not None]
    if not settled:
        raise UserError(f"{Path(oracle_dir) / FILE}: holds no pair with a settled verdict; restore the file")
    graders = list(settled[0].verdicts)
    groups = {group: [item for item in settled if item.group == group] for group in sorted({i.group for i in settled})}
    groups["all"] = settled
    table = []
    for group, members in groups.items():
        shares = {name: sum(i.verdicts[name] == i.intended for i in members) / len(members) for name in graders}
        table.append({"group": group, "rows": len(members), **shares})
    table[-1]["left_out"] = len(items) - len(settled)
    return table
