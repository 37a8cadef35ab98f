"""How far our instruction verdicts agree with recorded verdicts of the reference checkers."""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsr_jax.errors import UserError
from vsr_jax.verifiers.instructions import check_instructions

_SUFFIX = "_reference_outcomes_dev.jsonl"

# Suite, file, and the field of the recorded verdicts at each level.
_RECORDS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("ifeval", "ifeval", {"strict": "strict", "loose": "loose"}),
    ("iftrain", "ifevalg", {"strict": "passed"}),
    ("ifbench", "ifbench", {"strict": "strict", "loose": "loose"}),
    ("ifbench_2025", "ifbench", {"strict": "strict_2025", "loose": "loose_2025"}),
    ("mathif", "mathif", {"strict": "strict"}),
    ("reasonif", "reasonif", {"strict": "strict"}),
)

# Verdicts that hang on a language model other than the one the reference downloads.
_BY_FASTTEXT = ("language:reasoning_language", "change_case:english_capital")


@dataclass(frozen=True)
class Comparison:
    """One recorded verdict and ours.

    Attributes:
      group: the suite; `reasonif, language` for the verdicts that hang on a language model.
      key: the row in the record, by its own key or id.
      reference: None where the reference raised or is known to be random.
    """

    group: str
    level: str
    key: str
    instruction_id: str
    ours: bool
    reference: bool | None


SUITES = tuple(suite for suite, _, _ in _RECORDS)


def comparisons(oracle_dir: str | Path, *, suites: Collection[str] = SUITES) -> Iterator[Comparison]:
    """Every recorded verdict beside ours, suite by suite; files that are absent are left out.

    Args:
      oracle_dir: directory of `<suite>_reference_outcomes_dev.jsonl` files.
      suites: which to compare.

    Raises:
      UserError: the directory has none of the files, or a line is not a record.
    """
    directory = Path(oracle_dir)
    wanted = [record for record in _RECORDS if record[0] in suites]
    present = [record for record in wanted if (directory / (record[1] + _SUFFIX)).is_file()]
    if not present:
        raise UserError(f"{directory}: no file named *{_SUFFIX}; give the directory of the recorded verdicts")
    for suite, name, levels in present:
        path = directory / (name + _SUFFIX)
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    found = _compare(suite, levels, json.loads(line))
                except ValueError:
                    raise UserError(f"{path}, line {number}: not JSON; restore the file") from None
                except KeyError as missing:
                    raise UserError(f"{path}, line {number}: no field {missing}; restore the file") from None
                yield from found


def agreement(oracle_dir: str | Path) -> list[dict[str, Any]]:
    """The agreement table over every suite, see `tabulate`; raises what `comparisons` raises."""
    return tabulate(comparisons(oracle_dir))


def tabulate(items: Iterable[Comparison]) -> list[dict[str, Any]]:
    """Counts comparisons by suite and level.

    Returns:
      Dicts with `suite`, `level`, `rows` (verdicts compared), `agree`, `share` (agree / rows) and
      `left_out` (verdicts of which the reference has none: it raised, or is random there).
    """
    counts: dict[tuple[str, str], list[int]] = {}
    for item in items:
        count = counts.setdefault((item.group, item.level), [0, 0, 0])
        if item.reference is None:
            count[2] += 1
        else:
            count[0] += 1
            count[1] += item.ours == item.reference
    return [
        {"suite": group, "level": level, "rows": n, "agree": same, "share": same / max(n, 1), "left_out": out}
        for (group, level), (n, same, out) in counts.items()
    ]


def _compare(suite: str, levels: dict[str, str], row: dict[str, Any]) -> list[Comparison]:
    if "instruction_id" in row:
        ids, kwargs = [row["instruction_id"]], [row["kwargs"]]
    elif "instruction_id_list" in row:
        ids, kwargs = row["instruction_id_list"], row["kwargs"]
    else:
        ids, kwargs = row["constraint_name"], row["constraint_args"]
    unstable = row.get("reference_unstable") or [False] * len(ids)
    found = []
    for level, field in levels.items():
        recorded = row[field] if isinstance(row[field], list) else [row[field]]
        verdict = check_instructions(
            ids,
            kwargs,
            row["response"],
            prompt=row.get("prompt", ""),
            suite=suite,  # type: ignore[arg-type]
            level=level,  # type: ignore[arg-type]
        )
        for name, ours, reference, random in zip(ids, verdict.parts, recorded, unstable, strict=True):
            settled = isinstance(reference, bool) and not random
            group = "reasonif, language" if suite == "reasonif" and name in _BY_FASTTEXT else suite
            key = str(row.get("id", row.get("key")))
            found.append(Comparison(group, level, key, name, ours, reference if settled else None))
    return found
