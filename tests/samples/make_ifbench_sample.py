"""Picks the rows of `ifbench_sample.jsonl` from the verdicts of the reference checkers.

    python tests/samples/make_ifbench_sample.py ORACLE.jsonl

ORACLE holds rows with `response`, `instruction_id_list`, `kwargs` and, for the current release
and that of 2025, one verdict an instruction at both levels (`strict`, `loose`, `strict_2025`,
`loose_2025`; `error:Type` where the reference raised). Kept are, shortest first: every row with
one instruction on which the reference raised, and for each id one row of each combination of the
four verdicts that occurs. Responses were written for this purpose, verdicts are those of
allenai/IFBench (Apache-2.0), and requests quoted in arguments are IFBench's (ODC-BY-1.0).
"""

import json
import sys
from pathlib import Path

VERDICTS = ("strict", "loose", "strict_2025", "loose_2025")
TARGET = Path(__file__).with_name("ifbench_sample.jsonl")


def main(oracle: Path) -> None:
    rows = [json.loads(line) for line in oracle.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["kind"] == "crafted" and len(row["instruction_id_list"]) == 1]
    rows.sort(key=lambda row: (len(row["response"]) + len(json.dumps(row["kwargs"])), row["id"]))
    kept, seen = [], set()
    for row in rows:
        verdicts = tuple(row[name][0] for name in VERDICTS)
        combination = (row["instruction_id_list"][0], verdicts)
        raised = any(isinstance(verdict, str) for verdict in verdicts)
        if raised or combination not in seen:
            seen.add(combination)
            kwargs = [{k: v for k, v in given.items() if v is not None} for given in row["kwargs"]]
            kept.append({**row, "kwargs": kwargs})
    names = ("id", "response", "instruction_id_list", "kwargs", *VERDICTS)
    lines = [json.dumps({name: row[name] for name in names}, ensure_ascii=False) for row in kept]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
