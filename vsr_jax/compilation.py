"""Compiled programs are kept between runs, in the user's cache folder. A command asks for it, no import does."""

import os
import sys
from pathlib import Path

from vsr_jax.errors import UserError

VARIABLE = "VSR_COMPILATION_CACHE"
"""Environment variable: a folder in place of the default one, or `off`."""


def cache_folder() -> Path | None:
    """Where compiled programs are kept: `VSR_COMPILATION_CACHE`, else `vsr_jax/programs` in the user's cache folder.

    Returns:
      None where the variable says `off`.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked.lower() in ("off", "0", "none"):
        return None
    if asked:
        return Path(asked).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "vsr_jax" / "programs"


def keep_compiled() -> Path | None:
    """Switches JAX's persistent compilation cache on, by environment variables that JAX reads when it is imported.

    Does not import JAX. A folder or a switch that the user gave to JAX itself stays as it is.

    Returns:
      The folder, or None when nothing was switched on.

    Raises:
      UserError: the folder that `VSR_COMPILATION_CACHE` names cannot be made. The default one is then left out.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or "JAX_ENABLE_COMPILATION_CACHE" in os.environ:
        return None
    folder = cache_folder()
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if os.environ.get(VARIABLE):
            raise UserError(
                f"{VARIABLE}={folder}: {error.strerror}; name a folder that can be written, or off"
            ) from None
        return None
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    return folder
