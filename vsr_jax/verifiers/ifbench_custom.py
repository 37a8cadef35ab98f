"""IFBench `custom:` instructions: one checker for each of eleven fixed requests."""

import csv
import io
import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from vsr_jax.verifiers.ifbench_text import bare, plain_letters, without_punctuation
from vsr_jax.verifiers.text import rule_sentences, sentences

Splitter = Callable[[str], list[str]]

_CAPITAL_LIST = (
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw "
    "London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb"
)
_CAPITALS = _CAPITAL_LIST.split()
_QUESTION = re.compile(r"Question \d+[.|):;]?")
_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_SHORT_MONTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_SPECIAL = re.compile(r"[^\w\s]")


def multiples(response: str) -> bool:
    """The runs of digits are 14, 21, 28, 35, 42 and 49 and no others."""
    return re.findall(r"\d+", response) == [str(n) for n in range(14, 50, 7)]


def _question_length(question: str) -> int | None:
    """Characters of a question before its options; None unless it has five of them."""
    lines = [line.strip() for line in question.split("\n")]
    options = [i for i, line in enumerate(lines) if _OPTION.match(line)]
    return len(" ".join(lines[: options[0]]).strip()) if len(options) == 5 else None


def mcq_count_length(response: str) -> bool:
    """Begins with `Question`; four questions headed `Question` and a number, five options each, ever longer."""
    if not response.startswith("Question"):
        return False
    questions = [part.strip() for part in _QUESTION.split(response) if part.strip()]
    lengths = [_question_length(question) for question in questions]
    if len(lengths) != 4 or None in lengths:
        return False
    return all(a < b for a, b in pairwise(length for length in lengths if length is not None))


def reverse_newline(response: str) -> bool:
    """From the line with Zimbabwe on there are at least 52 lines in descending order, accents and outer marks aside."""
    lines = [line for line in map(bare, response.split("\n")) if line]
    start = next((i for i, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    listed = [plain_letters(line) for line in lines[start:]]
    return len(listed) >= 52 and all(a >= b for a, b in pairwise(listed))


def word_reverse(response: str) -> bool:
    """Read from the last word to the first, punctuation deleted, it names the bald eagle.

    The reference also asks for a single sentence, which a text without punctuation always is.
    """
    return "bald eagle" in " ".join(reversed(without_punctuation(response.lower()).split()))


def character_reverse(response: str) -> bool:
    """`bald eagle` stands in it letter by letter backwards."""
    return "elgae dlab" in response.lower()


def sentence_alphabet(split: Splitter, response: str, /) -> bool:
    """26 sentences whose first characters are a to z."""
    initials = [sentence.split()[0].lower()[0] if sentence.strip() else "" for sentence in split(response)]
    return initials == list("abcdefghijklmnopqrstuvwxyz")


def european_capitals_sort(response: str) -> bool:
    """The 27 capitals in the reference's order, divided by commas, accents aside and nothing else."""
    return [name.strip() for name in plain_letters(response).split(",") if name.strip()] == _CAPITALS


def _rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """The rows of CSV data; none where it cannot be read, on which the reference raised."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def _header(response: str, names: str, delimiter: str) -> bool:
    """Whether the first line holds the names, each bare or in double quotes."""
    columns = delimiter.join(f'(?:{name}|"{name}")' for name in names.split())
    return re.fullmatch(columns, response.partition("\n")[0].strip()) is not None


def csv_city(response: str) -> bool:
    """CSV data of a header and seven rows, five fields each."""
    rows = _rows(response)
    wanted = ["ID", "Country", "City", "Year", "Count"]
    return len(rows) == 8 and rows[0] == wanted and all(len(row) == 5 for row in rows)


def _quoted_special(field: str) -> bool:
    """Whether a field begins with a double quote and has, on that line, a special character before another one."""
    line = field.partition("\n")[0]
    return field.startswith('"') and _SPECIAL.search(line[1 : max(line.rfind('"'), 1)]) is not None


def csv_special_character(response: str) -> bool:
    """CSV data of a header and fourteen rows, where a field in double quotes holds a special character.

    Rows are five fields wide as far as the first row with such a field; those after it are not looked at.
    """
    if not _header(response, "ProductID Category Brand Price Stock", r",[ \t]*"):
        return False
    rows = _rows(response.replace('"', '"""'))
    if len(rows) != 15:
        return False
    for row in rows[1:]:
        if len(row) != 5:
            return False
        if any(map(_quoted_special, row)):
            return True
    return False


def csv_quotes(response: str) -> bool:
    """Tab-separated data of a header and three rows, five fields each and every one in double quotes.

    An empty field fails; the reference raised on it.
    """
    if not _header(response, "StudentID Subject Grade Semester Score", "\t *"):
        return False
    rows = _rows(response.replace('"', '"""'), delimiter="\t")
    fields = [field.strip() for row in rows for field in row]
    quoted = all(field.startswith('"') and field.endswith('"') for field in fields)
    return len(rows) == 4 and all(len(row) == 5 for row in rows) and quoted


def _napoleonic(date: str) -> bool:
    """A date of the form YYYY-MM-DD from 1769 to 1821; month 00 and day 00 pass, as in the reference."""
    match = _DATE.fullmatch(date)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    most = 99 if month == 0 else _SHORT_MONTHS.get(month, 31)
    return 1769 <= year <= 1821 and month <= 12 and day <= most


def date_format_list(response: str) -> bool:
    """Dates of Napoleon's life in the form YYYY-MM-DD, divided by commas, and nothing else."""
    return all(_napoleonic(date.strip()) for date in response.split(","))


def _table(split: Splitter) -> dict[str, Callable[..., bool]]:
    return {
        "custom:multiples": multiples,
        "custom:mcq_count_length": mcq_count_length,
        "custom:reverse_newline": reverse_newline,
        "custom:word_reverse": word_reverse,
        "custom:character_reverse": character_reverse,
        "custom:sentence_alphabet": partial(sentence_alphabet, split),
        "custom:european_capitals_sort": european_capitals_sort,
        "custom:csv_city": csv_city,
        "custom:csv_special_character": csv_special_character,
        "custom:csv_quotes": csv_quotes,
        "custom:date_format_list": date_format_list,
    }


CUSTOM = _table(sentences)
CUSTOM_2025 = _table(rule_sentences)
