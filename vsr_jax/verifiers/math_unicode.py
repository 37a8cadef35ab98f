"""Spell the non-ASCII characters of an answer in LaTeX."""

import re
import unicodedata

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_SPELLINGS = {
    **dict.fromkeys(_DASHES, "-"),
    "×": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*", "÷": "/", "∕": "/",
    "√": r"\sqrt ", "∛": r"\sqrt[3] ", "∞": r"\infty ", "°": r"^{\circ}", "º": r"^{\circ}",
    "≤": r"\leq ", "⩽": r"\leq ", "≥": r"\geq ", "⩾": r"\geq ", "≠": r"\neq ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ",
    "∪": r"\cup ", "∩": r"\cap ", "∖": r"\setminus ", "∈": r"\in ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}",
    "⟨": "(", "⟩": ")", "〈": "(", "〉": ")", "∠": r"\angle ", "△": r"\triangle ", "∣": "|", "′": "'",
    "‘": "'", "’": "'", "“": '"', "”": '"', "€": r"\$", "£": r"\$", "¥": r"\$", "、": ",", "。": ".",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ", "θ": r"\theta ", "λ": r"\lambda ",
    "μ": r"\mu ", "π": r"\pi ", "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\phi ", "ϕ": r"\phi ", "ω": r"\omega ",
    "Δ": r"\Delta ", "Ω": r"\Omega ", "𝜋": r"\pi ", "ⅈ": "i",
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
    plain = unicodedata.normalize("NFKC", character)
    if "\u2044" in plain:
        top, bottom = plain.split("\u2044")
        return rf"\frac{{{top}}}{{{bottom}}}"
    return "".join(_SPELLINGS.get(part, part) for part in plain)
