"""The rollout store: nothing half-written, nothing lost, nothing twice."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vsr_jax.data import store
from vsr_jax.errors import UserError


def columns(prompts, samples=3):
    """Columns for some prompts, different in every row."""
    keys = [(prompt, sample) for prompt in prompts for sample in range(samples)]
    rng = np.random.default_rng(sum(map(ord, "".join(prompts))))
    lengths = [int(rng.integers(0, 6)) for _ in keys]
    return {
        "prompt_id": [prompt for prompt, _ in keys],
        "sample_id": [sample for _, sample in keys],
        "prompt_tokens": [np.arange(4, dtype=np.int32) for _ in keys],
        "tokens": [rng.integers(0, 150_000, n).astype(np.int32) for n in lengths],
        "text": [f"text of {prompt} {sample} \u2713" for prompt, sample in keys],
        "logp": [-rng.random(n).astype(np.float32) for n in lengths],
        "logp_behavior": [np.full(n, -np.inf, np.float32) for n in lengths],
        "sampled": [np.ones(n, bool) for n in lengths],
        "finish_reason": ["stop"] * len(keys),
        "passed": [None if sample == 2 else sample == 0 for _, sample in keys],
        "parts": [[True, False]] * len(keys),
        "fraction": [None if sample == 2 else 0.5 for _, sample in keys],
        "status": ["timeout" if sample == 2 else "wrong" for _, sample in keys],
        "detail": ["42"] * len(keys),
        "opening": ["DRI"] * len(keys),
    }


def table(*prompts):
    return pa.concat_tables([store.make_table(columns([prompt])) for prompt in prompts])


def test_rows_come_back_as_written(tmp_path):
    rows = store.make_table(columns(["a", "b"]))
    path = store.write_part(tmp_path / "new" / "folder", rows)
    assert store.read_rollouts(path).equals(rows)
    assert rows["passed"].to_pylist()[:3] == [True, False, None]
    assert rows["logp_behavior"].null_count == 0


def test_the_sealed_file_does_not_depend_on_the_parts(tmp_path):
    for folder, parts in {
        "one": [("a", "b", "c")],
        "two": [("c",), ("b", "a")],
        "three": [("b",), ("c",), ("a",)],
    }.items():
        for part in parts:
            store.write_part(tmp_path / folder, table(*part))
        assert store.finished_prompts(tmp_path / folder) == {"a", "b", "c"}
        sealed = store.seal(tmp_path / folder)
        assert sealed == tmp_path / folder / "rollouts.parquet"
        assert [path.name for path in (tmp_path / folder).iterdir()] == ["rollouts.parquet"]
    read = [store.read_rollouts(tmp_path / folder) for folder in ("one", "two", "three")]
    assert read[0].equals(read[1])
    assert read[0].equals(read[2])
    assert read[0]["prompt_id"].to_pylist() == [prompt for prompt in "abc" for _ in range(3)]
    assert read[0]["sample_id"].to_pylist() == [0, 1, 2] * 3


def test_a_measurement_goes_on_after_sealing(tmp_path):
    store.write_part(tmp_path, table("b"))
    store.seal(tmp_path)
    store.write_part(tmp_path, table("a"))
    assert store.finished_prompts(tmp_path) == {"a", "b"}
    store.seal(tmp_path)
    assert store.read_rollouts(tmp_path).equals(table("a", "b"))
    before = (tmp_path / "rollouts.parquet").stat().st_mtime_ns
    store.seal(tmp_path)
    assert (tmp_path / "rollouts.parquet").stat().st_mtime_ns == before


def test_writing_the_same_prompts_again_replaces_the_part(tmp_path):
    first = store.write_part(tmp_path, table("a", "b"))
    assert store.write_part(tmp_path, table("b", "a")) == first
    store.seal(tmp_path)
    assert store.read_rollouts(tmp_path).equals(table("a", "b"))


def test_nothing_is_finished_where_nothing_lies(tmp_path):
    assert store.finished_prompts(tmp_path / "none") == set()
    with pytest.raises(UserError, match="has no parts; measure first"):
        store.seal(tmp_path)
    with pytest.raises(UserError, match=r"rollouts\.parquet: no such file"):
        store.read_rollouts(tmp_path)


@pytest.mark.parametrize("step", ["write_table", "fsync", "replace"])
def test_a_run_killed_while_writing_leaves_no_part(step, tmp_path):
    store.write_part(tmp_path, table("a"))
    script = f"""
        import os, pathlib
        import pyarrow.parquet as pq
        from tests.test_store import store, table

        def die(*args, **kwargs):
            os.kill(os.getpid(), 9)

        if {step!r} == "write_table":
            real = pq.write_table
            def half(rows, where, **kwargs):
                real(rows, where, **kwargs)
                with open(where, "r+b") as file:
                    file.truncate(100)
                die()
            pq.write_table = half
        elif {step!r} == "fsync":
            os.fsync = die
        else:
            pathlib.Path.replace = die
        store.write_part({str(tmp_path)!r}, table("b"))
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=root, env={**os.environ, "PYTHONPATH": root}
    )
    assert killed.returncode == -9
    assert store.finished_prompts(tmp_path) == {"a"}
    store.write_part(tmp_path, table("b"))
    store.seal(tmp_path)
    assert store.read_rollouts(tmp_path).equals(table("a", "b"))


def test_a_failed_write_leaves_no_file(tmp_path, monkeypatch):
    def full(rows, where, **_):
        where.write_bytes(b"PAR1")
        raise OSError("no space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="no space"):
        store.write_part(tmp_path, table("a"))
    assert list(tmp_path.iterdir()) == []


def test_a_seal_killed_before_it_removes_parts_can_run_again(tmp_path):
    part = store.write_part(tmp_path, table("a", "b"))
    content = part.read_bytes()
    store.seal(tmp_path)
    part.write_bytes(content)
    store.write_part(tmp_path, table("c"))
    store.seal(tmp_path)
    assert store.read_rollouts(tmp_path).equals(table("a", "b", "c"))
    assert not part.exists()


def test_a_prompt_in_two_parts_is_refused(tmp_path):
    store.write_part(tmp_path, table("a", "b"))
    store.write_part(tmp_path, table("b", "c"))
    with pytest.raises(UserError, match=r"part-.*: prompt_id: b is also in part-.*; delete one"):
        store.seal(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "empty", "flip"])
def test_a_damaged_file_is_named(damage, tmp_path):
    path = store.write_part(tmp_path, table("a", "b"))
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content = bytearray()
    else:  # inside a page, which only its checksum can tell
        text = pq.ParquetFile(path).metadata.row_group(0).column(4)
        content[text.dictionary_page_offset + text.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"part-.*\.parquet: torn or damaged .*delete it") as caught:
        store.read_rollouts(path)
    assert "\n" not in str(caught.value)
    if damage != "flip":
        with pytest.raises(UserError, match="torn or damaged"):
            store.finished_prompts(tmp_path)
    with pytest.raises(UserError, match="torn or damaged"):
        store.seal(tmp_path)
    assert path.exists()


def without(rows, name):
    return rows.drop_columns([name])


def replaced(rows, name, values, kind=None):
    return rows.set_column(rows.schema.get_field_index(name), name, pa.array(values, kind))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: without(rows, "logp"), "lacks logp; not the columns"),
        (lambda rows: rows.append_column("more", pa.array([1] * 3)), "has unknown more; not the columns"),
        (lambda rows: replaced(rows, "sample_id", ["0", "1", "2"]), "sample_id: is string, must be int32"),
        (lambda rows: replaced(rows, "tokens", [[1]] * 3, pa.list_(pa.int64())), "tokens: is list<.*int64>, must be"),
        (lambda rows: replaced(rows, "status", ["wrong", None, "timeout"]), "status: holds null"),
        (
            lambda rows: replaced(rows, "sample_id", [0, 0, 1], pa.int32()),
            "sample_id: some sample of a prompt occurs twice",
        ),
        (lambda rows: replaced(rows, "passed", [True, False, False]), "passed: must be null where status is timeout"),
        (
            lambda rows: replaced(rows, "logp", [[0.0] * 9] * 3, store.SCHEMA.field("logp").type),
            "logp: has another length than tokens",
        ),
        (lambda rows: rows.slice(0, 0), "has no rows"),
    ],
)
def test_a_table_of_another_shape_is_refused(change, message, tmp_path):
    rows = change(table("a"))
    with pytest.raises(UserError, match=message):
        store.write_part(tmp_path, rows)
    assert list(tmp_path.iterdir()) == []
    pq.write_table(rows, tmp_path / "part-x.parquet")
    with pytest.raises(UserError, match=rf"part-x\.parquet: {message}"):
        store.read_rollouts(tmp_path / "part-x.parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("text"), "rollouts: lacks text"),
        (lambda c: c.update(sample_id=["x", 1, 2]), "rollouts: sample_id: is not int32"),
        (lambda c: c.update(sample_id=[2**40, 1, 2]), "rollouts: sample_id: is not int32"),
        (lambda c: c.update(opening=["DRI"]), "columns have different lengths .*opening 1"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change, message):
    given = columns(["a"])
    change(given)
    with pytest.raises(UserError, match=message):
        store.make_table(given)
