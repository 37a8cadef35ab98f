"""The word list of the micro world, and its tokenizer in the ordinary Hugging Face format.

Every token is one space-separated piece of text, so `encode(decode(ids)) == ids` for ids without special tokens.
The line feed and the opening `\\boxed{` are tokens too, which lets the real answer and constraint checkers read
decoded text as they would read any other.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError

PAD, EOS, ASSISTANT, UNKNOWN = "<pad>", "<eos>", "<|assistant|>", "<unk>"
SPECIALS = (PAD, EOS, ASSISTANT, UNKNOWN)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PUNCTUATION = (*_words('. , ? : " { } * + - x = \\boxed{'), "\n")
NUMBERS = _words("0 1 2 3 4 5 6 7 8 9 10 12")
MARKS = _words("(1) (2) (3) (4) (5) [1] [2] <1> <2>")

TOPICS = _words("rivers mountains gardens horses trains houses songs friends islands birds stories winters")
# No adjective may be part of another word: they serve as keywords, and `keywords:existence` looks for a substring.
ADJECTIVES = _words("old calm bright warm quiet green strange rich small wild deep soft")
PLACES = (("at", "night"), ("in", "spring"), ("by", "day"))
FIRST_WORDS = _words("today indeed often usually")
END_PHRASES = ("that is all .", "the end .", "thank you .")
CAPITAL_WORDS = _words("GREAT NICE WOW YES")
RAMBLING_VERBS = _words("ask read talk think")

# Words that occur in both cases because some sentence may start with them.
_EITHER_CASE = (
    *TOPICS,
    *ADJECTIVES,
    *FIRST_WORDS,
    *_words("let us first we to answer the final here sure it they many that thank result"),
)
_LOWER = (
    *_words("are is and very solve step this compute need text you all end people about so then again"),
    *_words("less than at least words no commas with word capital points in quotes format bullet"),
    *(word for place in PLACES for word in place),
    *RAMBLING_VERBS,
)
_CAPITALISED = (*_words("Write Use End Avoid Start Put Reply JSON What"), *CAPITAL_WORDS)


def capitalise(word: str) -> str:
    """`word` with its first letter in upper case; marks and numbers are unchanged."""
    return word[:1].upper() + word[1:]


def uncapitalise(word: str) -> str:
    """`word` with its first letter in lower case."""
    return word[:1].lower() + word[1:]


def vocabulary() -> tuple[str, ...]:
    """All tokens in id order: special tokens, punctuation, numbers, marks, words."""
    both = [form for word in _EITHER_CASE for form in (word, capitalise(word))]
    return tuple(dict.fromkeys((*SPECIALS, *PUNCTUATION, *NUMBERS, *MARKS, *both, *_LOWER, *_CAPITALISED)))


def build_tokenizer() -> Tokenizer:
    """A word-level tokenizer: text splits at single spaces, ids join with single spaces."""
    ids = {token: index for index, token in enumerate(vocabulary())}
    tokenizer = Tokenizer(WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = Split(" ", behavior="removed")
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    return tokenizer


def save_tokenizer(directory: str | Path) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`, which `AutoTokenizer.from_pretrained` loads."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    build_tokenizer().save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": EOS,
        "unk_token": UNKNOWN,
        "additional_special_tokens": [ASSISTANT],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 128,
        "chat_template": "{{ messages[0]['content'] }} " + ASSISTANT,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def encode_prompt(tokenizer: Any, row: Row) -> list[int]:
    """The ids that a response continues: the tokens of the prompt, then `<|assistant|>`.

    Args:
      tokenizer: a `tokenizers.Tokenizer`, or the same one loaded by transformers.
      row: a row of the micro world.

    Raises:
      UserError: the prompt holds a word that the tokenizer does not know.
    """
    encoded = tokenizer.encode(f"{row.prompt} {ASSISTANT}", add_special_tokens=False)
    ids = list(getattr(encoded, "ids", encoded))  # tokenizers answers an Encoding, transformers a list
    if ids.count(SPECIALS.index(UNKNOWN)):
        raise UserError(f"row {row.id}: prompt: has words outside the micro world; use its own rows")
    return ids
