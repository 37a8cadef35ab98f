"""Takes the committed sample of recorded verdicts out of the full record.

Usage: python tests/samples/make_verdict_samples.py ORACLE_DIR

For each instruction id and each verdict the shortest responses are kept. The checkers that gave the
verdicts are Apache-2.0 (IFEval, IFEvalG) and MIT (MathIF), ReasonIF states no licence; the responses
are edits of Apache-2.0 texts or were made for the record.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent / "verdicts"
KEPT = {"ifeval": 2, "ifevalg": 2, "mathif": 2, "reasonif": 4}
FIELDS = (
    *("id", "key", "instruction_id", "instruction_id_list", "constraint_name", "kwargs", "constraint_args", "response"),
    *("passed", "strict", "loose", "reference_unstable"),
)


def outcomes(row: dict) -> Iterator[tuple[str, bool]]:
    """The (instruction id, verdict) pairs of a row."""
    if "instruction_id" in row:
        yield row["instruction_id"], row["passed"]
        return
    yield from zip(row.get("instruction_id_list") or row["constraint_name"], row["strict"], strict=True)


def main(directory: Path) -> None:
    """Writes one file a suite, with the names of the full record."""
    SAMPLES.mkdir(exist_ok=True)
    for suite, wanted in KEPT.items():
        name = f"{suite}_reference_outcomes_dev.jsonl"
        with (directory / name).open(encoding="utf-8") as lines:
            rows = sorted((json.loads(line) for line in lines), key=lambda row: len(json.dumps(row)))
        seen: dict[tuple[str, bool], int] = {}
        with (SAMPLES / name).open("w", encoding="utf-8") as out:
            for row in rows:
                new = list(outcomes(row))
                if row["response"].strip() and any(seen.get(outcome, 0) < wanted for outcome in new):
                    for outcome in new:
                        seen[outcome] = seen.get(outcome, 0) + 1
                    out.write(json.dumps({k: row[k] for k in FIELDS if k in row}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
