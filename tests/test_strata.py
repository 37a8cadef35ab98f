"""Subsets that keep a benchmark's make-up."""

from collections import Counter
from pathlib import Path

from vsr_jax.data.benchmarks import load_benchmark
from vsr_jax.data.rows import Row
from vsr_jax.data.strata import stratified, stratum


def rows(counts: dict[int, int]) -> list[Row]:
    return [
        Row(f"{n}-{i}", "p", "instructions", instruction_ids=("x",) * n)
        for n, count in counts.items()
        for i in range(count)
    ]


def test_shares_are_those_of_the_whole_and_the_order_is_kept() -> None:
    whole = rows({1: 60, 2: 30, 3: 10})
    kept = stratified(whole, 20)
    assert Counter(len(row.instruction_ids) for row in kept) == {1: 12, 2: 6, 3: 2}
    assert [row.id for row in kept] == [row.id for row in whole if row in kept]
    assert kept == stratified(whole, 20)
    assert kept != stratified(whole, 20, seed=1)


def test_remainders_go_to_the_largest_and_the_count_is_exact() -> None:
    whole = rows({1: 7, 2: 2, 3: 2})
    kept = Counter(len(row.instruction_ids) for row in stratified(whole, 5))
    assert sum(kept.values()) == 5
    assert kept == {1: 3, 2: 1, 3: 1}
    assert stratified(whole, 50) == whole


def test_ifeval_has_its_numbers_of_instructions_in_every_subset(shared_dir: Path) -> None:
    file = next((shared_dir / "data" / "ifeval").glob("*.jsonl"))
    whole = load_benchmark("ifeval", file)
    kept = stratified(whole, 100)
    assert len(kept) == 100
    share, of = Counter(map(stratum, kept)), Counter(map(stratum, whole))
    assert all(abs(share[name] - 100 * n / len(whole)) < 1 for name, n in of.items())
