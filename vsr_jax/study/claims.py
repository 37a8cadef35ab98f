"""Claims on pieces of work, so that several runners of one study never do the same one.

A claim is a file that one runner can create and no other. Its owner touches it while it works; one that has not been
touched for a while is of a dead runner and may be taken over; that of a process of this host which is gone, at once.
The folder must be shared by the runners and create files atomically: a local disk, or NFS version 3 or later.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vsr_jax.errors import UserError

EXPIRES_S = 300.0
"""A claim that was not touched for this long is given up."""

NAME = "claim.json"


def owner(folder: Path, *, expires_s: float = EXPIRES_S) -> str | None:
    """Who works in a folder now, as host and process; None where nobody does or the claim has expired."""
    file = folder / NAME
    try:
        if _is_dead(file, expires_s):
            return None
        held = json.loads(file.read_text())
        return f"{held['host']} process {held['process']}"
    except FileNotFoundError:
        return None
    except ValueError:
        return "a runner that is just starting"


def try_claim(folder: Path, *, expires_s: float = EXPIRES_S) -> str | None:
    """Takes the folder if nobody has it. Returns a token for `release`, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    file, token = folder / NAME, uuid.uuid4().hex
    content = json.dumps({"host": socket.gethostname(), "process": os.getpid(), "token": token})
    for _ in range(2):
        try:
            handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            if not _remove_expired(file, expires_s):
                return None
            continue
        with os.fdopen(handle, "w") as out:
            out.write(content)
        return token
    return None


def release(folder: Path, token: str) -> None:
    """Gives a claim up, if it still is this runner's."""
    if _token(folder / NAME) == token:
        (folder / NAME).unlink(missing_ok=True)


@contextmanager
def claimed(folder: Path, *, expires_s: float = EXPIRES_S) -> Iterator[bool]:
    """Yields whether this runner has the folder; holds the claim, touching it, until the block ends.

    Raises:
      UserError: at the end, when another runner took the claim meanwhile because this one had stopped for too long.
    """
    token = try_claim(folder, expires_s=expires_s)
    if token is None:
        yield False
        return
    ended, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not ended.wait(expires_s / 5):
            if _token(folder / NAME) != token:
                lost.set()
                return
            os.utime(folder / NAME)

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield True
    finally:
        ended.set()
        keeper.join()
        release(folder, token)
    if lost.is_set():
        raise UserError(f"{folder}: another runner took this stage over while this one stood still; its results count")


def _is_dead(file: Path, expires_s: float) -> bool:
    """Whether the owner of a claim is gone. Raises FileNotFoundError when there is no claim."""
    if time.time() - file.stat().st_mtime > expires_s:
        return True
    try:
        held = json.loads(file.read_text())
        if held["host"] != socket.gethostname():
            return False
        os.kill(held["process"], 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, PermissionError):
        return False
    return False


def _token(file: Path) -> str | None:
    try:
        return json.loads(file.read_text())["token"]
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _remove_expired(file: Path, expires_s: float) -> bool:
    """Clears a dead runner's claim. Only one of several that try gets to: renaming a file succeeds once."""
    try:
        if not _is_dead(file, expires_s):
            return False
        aside = file.with_name(f"{NAME}.{uuid.uuid4().hex}")
        os.rename(file, aside)
    except FileNotFoundError:
        return True
    if not _is_dead(aside, expires_s):
        # Between look and rename the dead claim went and a living one came: it is put back where nobody was faster.
        with suppress(FileExistsError):
            os.link(aside, file)
        aside.unlink()
        return False
    aside.unlink()
    return True
