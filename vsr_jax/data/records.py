"""JSONL records whose fields are read with checks: an error names the file, the line, the field and the fix."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from vsr_jax.errors import UserError


@dataclass(frozen=True)
class Record:
    """One raw row.

    Attributes:
      fields: the original fields.
      where: file and line (or data set and row), for messages.
      position: 0-based position in its file.
    """

    fields: Mapping[str, Any]
    where: str
    position: int

    def fail(self, field: str, problem: str) -> NoReturn:
        """Raises the `UserError` for a field."""
        raise UserError(f"{self.where}: {field}: {problem}")

    def text(self, *names: str) -> str:
        """The first field of these names that exists, as text that is not blank."""
        name, value = self._first(names)
        if not isinstance(value, str):
            self.fail(name, f"is {type(value).__name__}, must be text")
        if not value.strip():
            self.fail(name, "is empty")
        return value

    def items(self, name: str, kind: type, *, none_allowed: bool = False) -> list[Any]:
        """A list field whose entries are all of `kind` (or None, where allowed)."""
        _, value = self._first((name,))
        if not isinstance(value, list):
            self.fail(name, f"is {type(value).__name__}, must be a list")
        for entry in value:
            if not isinstance(entry, kind) and not (none_allowed and entry is None):
                self.fail(name, f"holds {type(entry).__name__}, must hold {kind.__name__} only")
        return value

    def number(self, *names: str) -> int:
        """A whole number, given as number (`70.0`) or digits (`"073"`)."""
        name, value = self._first(names)
        if isinstance(value, str) and value.strip().isdecimal():
            return int(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
            return int(value)
        self.fail(name, f"is {value!r}, must be a whole number")

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if name in self.fields:
                return name, self.fields[name]
        self.fail(" or ".join(names), f"is missing; the row has {', '.join(self.fields) or 'no fields'}")


def read_jsonl(path: str | Path) -> list[Record]:
    """All records of a JSONL file in order; blank lines are skipped.

    Raises:
      UserError: no such file, not UTF-8, a line that is not a JSON object, or no records at all.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a JSONL file")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; give a JSONL file") from None
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not JSON ({error}); each line must be one JSON object") from None
        if not isinstance(fields, dict):
            raise UserError(f"{where}: is {type(fields).__name__}, each line must be one JSON object")
        records.append(Record(fields, where, len(records)))
    if not records:
        raise UserError(f"{path}: has no rows")
    return records
