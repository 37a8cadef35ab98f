"""IFEval verdicts a second on one core, beside the public checker `if-verifiable` where it is installed.

Usage: python benchmarks/verifiers_instructions.py [ORACLE_DIR]

A verdict is one response with all its instructions at the strict level. Rows with an instruction
that identifies a language are timed apart. The public checker is not a dependency:
`pip install if-verifiable`, in an environment of its own if need be (it needs data of NLTK for
sentences and tokens: rows that need it are left out of both columns where the data is absent).
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from vsr_jax.verifiers import check_instructions

SAMPLES = Path(__file__).resolve().parent.parent / "tests/samples/verdicts"
LANGUAGE = {"language:response_language", "change_case:english_capital", "change_case:english_lowercase"}
NLTK_DATA = {"length_constraints:number_sentences", "change_case:capital_word_frequency"}
SECONDS = 2.0


def ours(row: dict) -> tuple[bool, ...]:
    return check_instructions(row["instruction_id_list"], row["kwargs"], row["response"]).parts


def public_checker() -> Callable[[dict], tuple[bool, ...]] | None:
    """The checkers of `if-verifiable` in the loop of the original evaluation script."""
    try:
        from if_verifiable.ifeval import instructions_registry
    except ImportError:
        return None

    def check(row: dict) -> tuple[bool, ...]:
        parts = []
        for name, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            instruction = instructions_registry.INSTRUCTION_DICT[name](name)
            instruction.build_description(**kwargs)
            parts.append(bool(row["response"].strip() and instruction.check_following(row["response"])))
        return tuple(parts)

    return check


def rate(check: Callable[[dict], tuple[bool, ...]], rows: list[dict]) -> float:
    """Verdicts a second of processor time, over whole passes of at least SECONDS."""
    for row in rows[:50]:
        check(row)
    start, done = time.process_time(), 0
    while time.process_time() - start < SECONDS:
        for row in rows:
            check(row)
        done += len(rows)
    return done / (time.process_time() - start)


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    lines = (directory / "ifeval_reference_outcomes_dev.jsonl").read_text(encoding="utf-8").strip().split("\n")
    rows = [json.loads(line) for line in lines]
    public = public_checker()
    held = [(set(row["instruction_id_list"]), row) for row in rows]
    groups = {
        "no language": [row for ids, row in held if not LANGUAGE & ids],
        "no language, no NLTK data": [row for ids, row in held if not (LANGUAGE | NLTK_DATA) & ids],
        "language, no NLTK data": [row for ids, row in held if LANGUAGE & ids and not NLTK_DATA & ids],
    }
    print(f"{'rows':28} {'responses':>9} {'characters':>10} {'ours / s':>10} {'public / s':>10}")
    for name, group in groups.items():
        length = sum(len(row["response"]) for row in group) // len(group)
        print(f"{name:28} {len(group):9} {length:10} {rate(ours, group):10.0f}", end=" ")
        try:
            print(f"{rate(public, group):10.0f}" if public else f"{'absent':>10}")
        except LookupError:
            print(f"{'no data':>10}")


if __name__ == "__main__":
    main()
