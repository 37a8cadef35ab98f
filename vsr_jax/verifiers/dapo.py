"""The answer rule of the DAPO recipe: last characters, last answer line, string normalisation, string equality.

Source: the public scorer of that recipe (verl, `reward_score/math_dapo.py`), whose normalisation is the one published
with Minerva (Lewkowycz et al., 2022, appendix D). Kept for comparison with runs that were trained on it: it reads a box
only inside an answer line, knows no values (1/2 is not 0.5), and does not read golds with leading zeros.
"""

import re

from vsr_jax.verifiers.math_extract import Extract
from vsr_jax.verifiers.types import Verdict

WINDOW = 300  # characters at the end of the response
BOX_WINDOW = 100
_ANSWER = re.compile(r"answer\s*:\s*([^\n]+)", re.IGNORECASE)
_REPLACED = (
    ("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), ("\\ ", ""), (" ", ""), ("mbox", "text"), (",\\text{and}", ","),
    ("\\text{and}", ","), ("\\text{m}", "\\text{}"),
)  # fmt: skip
_REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots", "sue", "points",
    "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges",
    "students", "childrentickets", "multiples", "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2",
    "\\text{}^3", "\\text{\n}", "\\text{}", "\\mathrm{th}", "^\\circ", "^{\\circ}", "\\;", ",\\!", "{,}", '"', "\\dots",
)  # fmt: skip


def check_dapo(gold: str, response: str, extract: Extract = "auto") -> Verdict:
    """Applies the rule; `boxed` selects its strict form: the last box of the last 100 characters, as it stands."""
    if extract == "boxed":
        answer = _last_braced_box(response[-BOX_WINDOW:])
        passed = answer == gold
    else:
        lines = _ANSWER.findall(response[-WINDOW:])
        answer = normalise(lines[-1]) if lines else None
        passed = answer == normalise(gold)
    if answer is None:
        return Verdict(False, (False,), 0.0, "no_answer", "no answer line" if extract != "boxed" else "no box")
    return Verdict(passed, (passed,), float(passed), "correct" if passed else "wrong", answer)


def normalise(answer: str) -> str:
    """The published string normalisation, quirks included: removals are plain substring removals, in this order."""
    answer = answer.rpartition("=")[2]
    for old, new in _REPLACED:
        answer = answer.replace(old, new)
    for removed in _REMOVED:
        answer = answer.replace(removed, "")
    answer = re.sub(r".*?\$(.*?)\$.*", r"$\1$", answer)
    for font in ("text", "textbf", "overline"):
        answer = re.sub(rf"\\{font}\{{(.*?)\}}", r"\1", answer)
    answer = re.sub(r"\\boxed\{(.*)\}", r"\1", answer)
    answer = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", answer)
    answer = re.sub(r"sqrt([^{])", r"sqrt{\1}", answer).replace("$", "")
    if answer.replace(",", "").isdigit():
        answer = answer.replace(",", "")
    return answer.strip()


def _last_braced_box(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0 and text[index] == "}":
            return text[start + len("\\boxed{") : index]
    return None
