"""Make the small samples of MATH answers and of recorded opinions on answers.

Usage: python tests/samples/make_math_samples.py DATA_DIR

Reads `math/math500_test.jsonl`, `math/math_train_7500.jsonl` (MIT, hendrycks/math) and
`oracle/math_equivalence_dev.jsonl`; writes `math_golds.json` and `math_equivalence_sample.jsonl` beside this file.
"""

import json
import random
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLAIN = re.compile(r"-?[0-9.]*[0-9]|-?\\frac\{\d+\}\{\d+\}")
STRUCTURED = re.compile(r"text|mbox|_|begin|cup|le|approx|:|=|\\%|\$|circ|,")
FIELDS = ("id", "gold", "gold_class", "transform", "intended", "response", "verdicts")


def read(path: Path) -> list[dict]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def golds(data: Path) -> list[str]:
    """450 distinct answers, most of them of the kinds that are hard to compare."""
    rows = read(data / "math/math500_test.jsonl") + read(data / "math/math_train_7500.jsonl")
    answers = list(dict.fromkeys(row["answer"] for row in rows if row["answer"]))
    plain = [answer for answer in answers if PLAIN.fullmatch(answer)]
    structured = [answer for answer in answers if not PLAIN.fullmatch(answer) and STRUCTURED.search(answer)]
    rest = [answer for answer in answers if not PLAIN.fullmatch(answer) and not STRUCTURED.search(answer)]
    draws = random.Random(0)
    chosen = draws.sample(plain, 80) + draws.sample(structured, 220) + draws.sample(rest, 150)
    draws.shuffle(chosen)
    return chosen


def opinions(data: Path) -> list[dict]:
    """130 pairs, at least one of each transformation."""
    rows = read(data / "oracle/math_equivalence_dev.jsonl")
    random.Random(3).shuffle(rows)
    first = {row["transform"]: row for row in reversed(rows)}
    chosen = [row for row in rows if first[row["transform"]] is row]
    chosen += [row for row in rows if first[row["transform"]] is not row][: 130 - len(chosen)]
    return [{field: row[field] for field in FIELDS} for row in chosen]


def main() -> None:
    data = Path(sys.argv[1])
    (HERE / "math_golds.json").write_text(json.dumps(golds(data), indent=0, ensure_ascii=False))
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in opinions(data)]
    (HERE / "math_equivalence_sample.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
