"""Tokenizers: loading exactly what the model directory says, which ids end a text, and how many ids exist.

Token ids are the truth: a policy is trained and scored on the ids that it sampled. Text is derived from them for
verifiers and readers; encoding it again may give other ids, so nothing here offers to.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsr_jax.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CHAT_END = "<|im_end|>"


def load_tokenizer(model_dir: str | os.PathLike[str]) -> "PreTrainedTokenizerBase":
    """Loads the tokenizer of a local model directory. Reads no network and runs no code from the directory.

    A `tokenizer.json` is taken as it stands. `AutoTokenizer` would instead rebuild the splitting rules of the class
    that it connects with the config's `model_type`, and so silently encode otherwise than the file says (seen with
    transformers 5.24: a word-level `tokenizer.json` beside `"model_type": "qwen2"`). It serves directories that
    have only the older `vocab.json` with `merges.txt`, or a `tokenizer.model`.

    Raises:
      UserError: no such directory, no tokenizer in it, or one that cannot be read.
    """
    directory = Path(model_dir)
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory; a tokenizer is loaded from a local model directory")
    file = directory / "tokenizer.json"
    if not (file.exists() or any((directory / name).exists() for name in ("vocab.json", "tokenizer.model"))):
        raise UserError(f"{directory}: no tokenizer.json; copy the tokenizer files of the model into the directory")

    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        if file.exists():
            return PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
        return AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises bare Exception on a malformed file
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"{file if file.exists() else directory}: not a readable tokenizer ({reason[0]})") from None


def token_count(tokenizer: "PreTrainedTokenizerBase") -> int:
    """The largest id with an entry, plus one; added tokens count.

    Checkpoints pad the vocabulary to a round size (151,936 rows for the 151,669 ids of Qwen3). Rows from this number
    on are no tokens and have probability zero. Unlike `len(tokenizer)` it is right when ids have gaps.
    """
    return max(tokenizer.get_vocab().values()) + 1


def stop_ids(model_dir: str | os.PathLike[str], tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """Every id that ends a response, ascending.

    The union of `eos_token_id` in `config.json` and in `generation_config.json` (an id, a list, or absent), the
    tokenizer's end-of-sequence token, and `<|im_end|>` where the tokenizer has it: the four disagree in published
    base and chat checkpoints, and a response that misses its end runs on to the length limit. Empty when no source
    names one.

    Raises:
      UserError: an `eos_token_id` is neither an id nor a list of ids.
    """
    directory = Path(model_dir)
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        found.update(_eos_ids(directory / name))
    if isinstance(tokenizer.eos_token_id, int):
        found.add(tokenizer.eos_token_id)
    chat_end = tokenizer.get_vocab().get(_CHAT_END)
    if chat_end is not None:
        found.add(chat_end)
    return tuple(sorted(found))


def text_of(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    """Text of a response's ids for verifiers and readers: special tokens left out, spaces exactly as sampled.

    Bytes that do not form a character, as where a length limit cuts one, become U+FFFD.
    """
    text = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text


def _eos_ids(file: Path) -> Iterable[int]:
    """Ids under `eos_token_id`; none when the file or the field is absent."""
    if not file.exists():
        return ()
    try:
        raw: Any = json.loads(file.read_text())
    except ValueError as error:
        raise UserError(f"{file}: not valid JSON ({error})") from None
    value = raw.get("eos_token_id") if isinstance(raw, dict) else None
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for item in ids:
        if not isinstance(item, int) or isinstance(item, bool) or item < 0:
            raise UserError(f"{file}: field eos_token_id must be a token id or a list of them, found {value!r}")
    return ids
