"""The rollout store: one parquet file a measurement, written in parts that survive a killed run.

A part holds all samples of some prompts. It is written to a temporary file and renamed, so that a part that can be
seen is whole, and a run that starts again leaves out the prompts that it finds. `seal` merges the parts.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vsr_jax.errors import UserError

SEALED = "rollouts.parquet"
_NO_VERDICT = ("timeout", "error")


def _field(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


SCHEMA = pa.schema(
    [
        _field("prompt_id", pa.string()),  # id of the benchmark row
        _field("sample_id", pa.int32()),  # 0..n-1 within a prompt
        _field("prompt_tokens", _list(pa.int32())),
        _field("tokens", _list(pa.int32())),  # the response, its stop token included
        _field("text", pa.string()),  # derived from tokens, never encoded again
        _field("logp", _list(pa.float32())),  # nats, under the raw policy
        _field("logp_behavior", _list(pa.float32())),  # nats, under the distribution that was drawn from
        _field("sampled", _list(pa.bool_())),  # false where a token was forced
        _field("finish_reason", pa.string()),  # stop or length
        _field("passed", pa.bool_(), nullable=True),  # null: no verdict, never counted as wrong
        _field("parts", _list(pa.bool_())),  # one a constraint
        _field("fraction", pa.float32(), nullable=True),  # share of parts that hold; null: no verdict
        _field("status", pa.string()),  # of the verdict
        _field("detail", pa.string()),  # for a reader, such as the extracted answer
        _field("opening", pa.string()),  # opening class
    ]
)
_PER_TOKEN = ("logp", "logp_behavior", "sampled")


def make_table(columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """A table of `SCHEMA` from one sequence a column; entries of list columns may be numpy arrays.

    Raises:
      UserError: a column is missing, unknown, or has values of another type.
    """
    _check_names("rollouts", list(columns))
    arrays = []
    for field in SCHEMA:
        try:
            arrays.append(pa.array(columns[field.name], type=field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise UserError(f"rollouts: {field.name}: is not {field.type} ({_line(error)})") from None
    if len({len(array) for array in arrays}) > 1:
        sizes = ", ".join(f"{field.name} {len(array)}" for field, array in zip(SCHEMA, arrays, strict=True))
        raise UserError(f"rollouts: columns have different lengths ({sizes})")
    return pa.table(arrays, schema=SCHEMA)


def write_part(directory: str | Path, rows: pa.Table) -> Path:
    """Writes one part, all or nothing, and returns its path. The same prompts always make the same file name.

    Args:
      directory: of the measurement; made when missing.
      rows: a table of `SCHEMA` that holds all samples of its prompts.

    Raises:
      UserError: another schema, no rows, a null where none is allowed, per-token columns of another length than
        `tokens`, a repeated sample, or `passed` set where there is no verdict.
    """
    _check_rows("rollouts", rows)
    prompts = sorted(set(rows["prompt_id"].to_pylist()))
    name = hashlib.sha256("\n".join(prompts).encode()).hexdigest()[:16]
    path = Path(directory) / f"part-{name}.parquet"
    _write(path, rows)
    return path


def finished_prompts(directory: str | Path) -> set[str]:
    """Ids of the prompts whose samples lie in the directory, in parts or sealed; empty where there is none.

    Raises:
      UserError: a file that cannot be read or has another schema.
    """
    directory = Path(directory)
    return {prompt for path in _files(directory) for prompt in _prompt_ids(path)}


def seal(directory: str | Path) -> Path:
    """Merges all parts into `rollouts.parquet`, sorted by prompt id and sample id, and removes them.

    The file does not depend on how the prompts were spread over parts. Killed at any moment, it can be run again.
    All rows are held in memory at once.

    Raises:
      UserError: nothing to merge, an unreadable file, or a prompt that occurs in two files.
    """
    directory = Path(directory)
    files = _files(directory)
    if not files:
        raise UserError(f"{directory}: has no parts; measure first")
    owner: dict[str, Path] = {}
    kept = []
    for path in files:  # the sealed file comes first
        prompts = set(_prompt_ids(path))
        if path.name != SEALED and all(owner.get(prompt) == directory / SEALED for prompt in prompts):
            continue  # merged before, by a seal that was killed before it removed the part
        for prompt in prompts:
            if prompt in owner:
                raise UserError(f"{path}: prompt_id: {prompt} is also in {owner[prompt].name}; delete one of the files")
            owner[prompt] = path
        kept.append(path)
    if len(kept) > 1 or kept[0].name != SEALED:
        merged = pa.concat_tables([read_rollouts(path) for path in kept])
        _write(directory / SEALED, merged.sort_by([("prompt_id", "ascending"), ("sample_id", "ascending")]))
    for path in files:
        if path.name != SEALED:
            path.unlink()
    return directory / SEALED


def read_rollouts(path: str | Path) -> pa.Table:
    """The table of a sealed measurement (its directory or file) or of one part, checked.

    Raises:
      UserError: no such file, a torn or damaged file, or another schema.
    """
    path = Path(path)
    if path.is_dir():
        path = path / SEALED
    with _readable(path):
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    _check_rows(str(path), table)
    return table


def _files(directory: Path) -> list[Path]:
    sealed = directory / SEALED
    return ([sealed] if sealed.exists() else []) + sorted(directory.glob("part-*.parquet"))


def _prompt_ids(path: Path) -> list[str]:
    with _readable(path):
        file = pq.ParquetFile(path)
        _check_schema(str(path), file.schema_arrow)
        return file.read(columns=["prompt_id"])["prompt_id"].to_pylist()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    if not path.is_file():
        raise UserError(f"{path}: no such file; measure and seal first")
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path}: torn or damaged ({_line(error)}); delete it and its prompts are sampled again"
        ) from None


def _write(path: Path, table: pa.Table) -> None:
    def write(temporary: Path) -> None:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)

    _atomically(path, write)


def _atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Writes beside the target and renames, with both steps forced to disk. A failed write leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check_names(where: str, names: list[str]) -> None:
    missing = [name for name in SCHEMA.names if name not in names]
    unknown = [name for name in names if name not in SCHEMA.names]
    if missing or unknown:
        problems = [
            f"{word} {', '.join(some)}" for word, some in (("lacks", missing), ("has unknown", unknown)) if some
        ]
        raise UserError(f"{where}: {' and '.join(problems)}; not the columns of this version's rollouts")


def _check_schema(where: str, schema: pa.Schema) -> None:
    _check_names(where, schema.names)
    for field in SCHEMA:
        found = schema.field(field.name).type
        if found != field.type:
            raise UserError(f"{where}: {field.name}: is {found}, must be {field.type}")


def _check_rows(where: str, table: pa.Table) -> None:
    _check_schema(where, table.schema)
    if not table.num_rows:
        raise UserError(f"{where}: has no rows")
    for field in SCHEMA:
        if not field.nullable and table[field.name].null_count:
            raise UserError(f"{where}: {field.name}: holds null")
    lengths = _lengths(table["tokens"])
    for name in _PER_TOKEN:
        if not np.array_equal(_lengths(table[name]), lengths):
            raise UserError(f"{where}: {name}: has another length than tokens in some row")
    samples = list(zip(table["prompt_id"].to_pylist(), table["sample_id"].to_pylist(), strict=True))
    if len(set(samples)) < len(samples):
        raise UserError(f"{where}: sample_id: some sample of a prompt occurs twice")
    verdicts = zip(table["status"].to_pylist(), table["passed"].to_pylist(), strict=True)
    if any(status in _NO_VERDICT and passed is not None for status, passed in verdicts):
        raise UserError(f"{where}: passed: must be null where status is timeout or error")


def _lengths(column: pa.ChunkedArray) -> np.ndarray:
    return np.concatenate([chunk.value_lengths().to_numpy(zero_copy_only=False) for chunk in column.chunks])


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
