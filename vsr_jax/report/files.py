"""Files appear whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_atomic(path: str | Path, content: str | bytes) -> Path:
    """Writes a file by way of a temporary one in the same folder, which is made if it is missing; returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path
