"""From a name to the files of a model: a local directory, or a pinned snapshot of a hub repository."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from vsr_jax.errors import UserError

# Weights as safetensors and the text files beside them. Pickled weights and Python files are never fetched.
_WEIGHTS = "*.safetensors"
_TEXTS = ("*.json", "*.jinja", "merges.txt", "tokenizer.model")
# Folders of a repository hold other formats of the same weights.
_SKIP = ("*/*",)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_EXAMPLE = "Qwen/Qwen3-8B-Base"


@dataclass(frozen=True)
class ModelFiles:
    """Where the files of a model lie, and what to record so that the same files can be had again.

    Attributes:
      directory: holds `config.json` and safetensors weights.
      source: the hub id, or the local path as it was given.
      revision: commit of the hub snapshot, also when a branch or nothing was asked for; None for a local directory.
    """

    directory: Path
    source: str
    revision: str | None


def resolve_model(
    name_or_path: str | os.PathLike[str], revision: str | None = None, *, weights: bool = True
) -> ModelFiles:
    """Finds a local directory, or downloads a hub repository's safetensors, JSON and tokenizer files.

    A directory that exists is taken before a hub id of the same name. The usual variables of `huggingface_hub` hold:
    `HF_HUB_OFFLINE=1` uses the cache and no network, `HF_HOME` moves the cache, `HF_TOKEN` opens gated models.

    Args:
      name_or_path: directory, or hub id `owner/name`.
      revision: branch, tag or commit of a hub id.
      weights: False leaves the weights on the hub, and does not ask a local directory for them.

    Raises:
      UserError: no such directory or repository, no `config.json` or no safetensors weights in it, the hub out of
        reach, or a revision asked of a local directory.
    """
    name = os.fspath(name_or_path)
    local = Path(name).expanduser()
    if local.is_dir():
        if revision is not None:
            raise UserError(f"{name}: a local directory has no revision; drop revision {revision!r}")
        return ModelFiles(_checked(local, weights), name, None)
    if local.exists():
        raise UserError(f"{name}: is a file; give the model's directory")
    if not _HUB_ID.fullmatch(name):
        raise UserError(f"{name}: no such directory, nor the form of a hub id such as {_EXAMPLE}")
    snapshot = _download(name, revision, (_WEIGHTS, *_TEXTS) if weights else _TEXTS)
    # The cache keeps each snapshot in a folder named by its commit.
    commit = snapshot.name if _COMMIT.fullmatch(snapshot.name) else revision
    return ModelFiles(_checked(snapshot, weights), name, commit)


def _download(repo_id: str, revision: str | None, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        directory = snapshot_download(
            repo_id, revision=revision, allow_patterns=list(patterns), ignore_patterns=list(_SKIP)
        )
    except Exception as error:  # network, disk, permission, name: all end here, and all are the caller's to mend
        at = f" at revision {revision!r}" if revision else ""
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{repo_id}: no such directory, and not available from the hub{at}: {reason}") from None
    assert isinstance(directory, str)
    return Path(directory)


def _checked(directory: Path, weights: bool) -> Path:
    """The directory, once it is seen to hold a config and, where asked, safetensors weights."""
    if not (directory / "config.json").is_file():
        raise UserError(f"{directory / 'config.json'}: no such file; a model directory needs one")
    if not weights or any(
        (directory / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")
    ):
        return directory
    other = sorted(file.name for file in directory.iterdir() if file.suffix in {".bin", ".pt", ".pth", ".gguf"})
    found = f"; {other[0]} is not read, convert the weights to safetensors" if other else ""
    raise UserError(f"{directory}: holds neither model.safetensors nor model.safetensors.index.json{found}")
