"""A researcher's own objective, from a Python file of theirs."""

import hashlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any, cast

from vsr_jax.errors import UserError
from vsr_jax.objectives.types import Objective, PerToken


def load_objective(place: str) -> Objective:
    """Loads `path/to/file.py:name`. The file is run, like any script of the user's.

    The name may stand for a function `(logits, batch) -> (values, metrics)`, which gets the token mean; for an
    `Objective`; or for a function that needs no arguments and returns one.

    Raises:
      UserError: no such file or name, the file does not run, or the name stands for something else.
    """
    path_text, colon, name = place.rpartition(":")
    if not colon or not name or not path_text.endswith(".py"):
        raise UserError(f"objective {place!r}: write it as path/to/file.py:name")
    path = Path(path_text).resolve()
    if not path.is_file():
        raise UserError(f"objective {place!r}: no file {path}")
    module = _run(path)
    if not hasattr(module, name):
        public = sorted(key for key, value in vars(module).items() if _offers(value, module.__name__))
        raise UserError(f"objective {place!r}: {path} defines no {name!r}; it defines {', '.join(public) or 'nothing'}")
    return _as_objective(getattr(module, name), place)


def _run(path: Path) -> Any:
    # Named by its content as well: an edited file is a new module, and two files of one name do not meet.
    digest = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(f"vsr_objective_{digest}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        reason = " ".join(str(error).split())
        raise UserError(f"objective file {path}{_line(error, path)}: {type(error).__name__}: {reason}") from error
    return module


def _line(error: Exception, path: Path) -> str:
    """`, line N` of the file itself, where the error says so."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f", line {line}" if line else ""


def _offers(value: Any, module: str) -> bool:
    return isinstance(value, Objective) or (inspect.isfunction(value) and value.__module__ == module)


def _as_objective(value: Any, place: str) -> Objective:
    if isinstance(value, Objective):
        return value
    if not callable(value):
        raise UserError(f"objective {place!r} is a {type(value).__name__}, neither a function nor an Objective")
    needed = [
        parameter
        for parameter in inspect.signature(value).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(needed) == 2 and all(parameter.kind != parameter.KEYWORD_ONLY for parameter in needed):
        return Objective(cast(PerToken, value))
    if needed:
        names = ", ".join(parameter.name for parameter in needed)
        raise UserError(f"objective {place!r} takes ({names}); it must take (logits, batch), or nothing")
    made = value()
    if not isinstance(made, Objective):
        raise UserError(f"objective {place!r} returned a {type(made).__name__}; it must return an Objective")
    return made
