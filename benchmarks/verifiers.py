"""Verdicts a second of the verifiers on one core, beside public checkers where they are installed.

Usage: python benchmarks/verifiers.py [math] [instructions]

Math: pairs of gold and response from the committed sample, and the commonest case of training, a wrong boxed integer at
the end of a long response. `math-verify` is timed on the same pairs if it can be imported (it is not a dependency).
Instructions: see `verifiers_instructions.py`, which this runs.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from vsr_jax.verifiers import Pool, Verdict, check_math

SAMPLE = Path(__file__).resolve().parent.parent / "tests/samples/math_equivalence_sample.jsonl"
SECONDS = 2.0
Pair = tuple[str, str]


def long_response(answer: str) -> str:
    return "We add the numbers and check the sum. " * 400 + rf"So the answer is $\boxed{{{answer}}}$."


def kinds() -> dict[str, list[Pair]]:
    with SAMPLE.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    plain = [(str(number), long_response(str(number + number % 2))) for number in range(200)]
    micro = [
        ("<1> 5 <2> 6", rf"[1] 4 (1) + 3 = 7 <1> 7 . The final answer is \boxed{{ <1> {n} <2> 6 }} .")
        for n in range(10)
    ]
    return {
        "integers, responses of 15,000 characters": plain,
        "micro world": micro,
        "recorded pairs, all kinds of gold": [(row["gold"], row["response"]) for row in rows],
    }


def ours(pair: Pair) -> bool:
    return check_math(*pair).passed


def math_verify() -> Callable[[Pair], bool] | None:
    """The grader of the package `math-verify` as its documentation uses it."""
    try:
        import math_verify as public
    except ImportError:
        return None

    def check(pair: Pair) -> bool:
        return bool(public.verify(public.parse(f"${pair[0]}$"), public.parse(pair[1])))

    return check


def rate(check: Callable[[Pair], bool], pairs: list[Pair]) -> float:
    """Verdicts a second of processor time, over whole passes of at least SECONDS."""
    for pair in pairs[:20]:
        check(pair)
    start, done = time.process_time(), 0
    while time.process_time() - start < SECONDS:
        for pair in pairs:
            check(pair)
        done += len(pairs)
    return done / (time.process_time() - start)


def check_pair(pair: Pair) -> Verdict:
    return check_math(*pair)


def pool_rate(pairs: list[Pair]) -> float:
    """Verdicts a second of wall time through a pool of two workers, their start not counted."""
    batch = pairs * (2_000 // len(pairs) + 1)
    with Pool(2, 5.0) as pool:
        pool.map(check_pair, pairs[:4])
        start = time.perf_counter()
        pool.map(check_pair, batch)
        return len(batch) / (time.perf_counter() - start)


def math() -> None:
    public = math_verify()
    print(f"{'math':45} {'ours':>9} {'pool of 2':>10} {'math-verify':>12}   verdicts a second")
    for kind, pairs in kinds().items():
        other = f"{rate(public, pairs):12,.0f}" if public else f"{'absent':>12}"
        print(f"{kind:45} {rate(ours, pairs):9,.0f} {pool_rate(pairs):10,.0f} {other}")


def instructions() -> None:
    from verifiers_instructions import main

    sys.argv[1:] = []
    main()


if __name__ == "__main__":
    for part in sys.argv[1:] or ["math", "instructions"]:
        {"math": math, "instructions": instructions}[part]()
