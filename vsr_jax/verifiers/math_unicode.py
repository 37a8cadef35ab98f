"""Spell the non-ASCII characters of an answer in LaTeX."""

import re
import unicodedata

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_SPELLINGS = {
    **dict.fromkeys(_DASHES, "-"),
    "×": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*", "÷": "/", "∕": "/",
    "√": r"\sqrt ", "∛": r"\sqrt[3] ", "∞": r"\infty ", "°": r"^{\circ}", "º": r"^{\circ}",
    "≤": r"\leq ", "⩽": r"\leq ", "≥": r"\geq ", "⩾": r"\geq ", "≠": r"\neq ", "≈": r"\approx ", "±": r"\pm ",
    "∓": r"\mp ", "ⅈ": "i", "ⅇ": "e",
    "∪": r"\cup ", "∩": r"\cap ", "∖": r"\setminus ", "∈": r"\in ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}",
    "⟨": "(", "⟩": ")", "〈": "(", "〉": ")", "∠": r"\angle ", "△": r"\triangle ", "∣": "|", "′": "'",
    "‘": "'", "’": "'", "“": '"', "”": '"', "€": r"\$", "£": r"\$", "¥": r"\$", "、": ",", "。": ".",
}  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿˣ", "0123456789+-()nx")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
_RAISED_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿˣ]+")
_LOWERED_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")


def to_latex(text: str) -> str:
    """`text` with dashes, digits of any script, raised and lowered digits, Greek letters and operators as LaTeX.

    Raised digits are handled before compatibility normalisation, which would turn 3 squared into 32.
    """
    if text.isascii():
        return text
    text = _RAISED_RUN.sub(lambda run: "^{" + run.group().translate(_RAISED) + "}", text)
    text = _LOWERED_RUN.sub(lambda run: "_{" + run.group().translate(_LOWERED) + "}", text)
    return "".join(character if character.isascii() else _spell(character) for character in text)


def _spell(character: str) -> str:
    if character in _SPELLINGS:
        return _SPELLINGS[character]
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if unicodedata.category(character) == "Cf":  # invisible: joiners, byte-order marks
        return ""
    name = unicodedata.name(character, "")
    if name.startswith(("GREEK SMALL LETTER ", "GREEK CAPITAL LETTER ")):
        letter = name.rpartition(" ")[2].replace("LAMDA", "LAMBDA")
        return f"\\{letter.lower() if 'SMALL' in name else letter.capitalize()} "
    plain = unicodedata.normalize("NFKC", character)
    if "\u2044" in plain:
        top, bottom = plain.split("\u2044")
        return rf"\frac{{{top}}}{{{bottom}}}"
    return plain if plain == character else to_latex(plain)
