"""Names that follow a number: units of measurement, scale words and number words."""

from vsr_jax.verifiers.math_vocabulary import word_set

# Canonical name: other spellings. A plural s is understood.
_TABLE = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre", "km": "kilometer kilometre",
    "in": "inch inches", "ft": "foot feet", "yd": "yard", "mi": "mile", "mg": "milligram", "g": "gram gm",
    "kg": "kilogram", "lb": "pound", "oz": "ounce", "ml": "milliliter millilitre", "l": "liter litre", "gal": "gallon",
    "s": "second sec", "min": "minute", "h": "hour hr", "day": "", "week": "", "month": "", "year": "yr", "mph": "",
    "kph": "kmh", "cent": "", "dollar": "usd", "euro": "eur", "acre": "",
}  # fmt: skip
_KNOWN = {
    form: name for name, others in _TABLE.items() for word in (name, *others.split()) for form in (word, f"{word}s")
}

SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
NUMBER_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20,
}  # fmt: skip
SHAPES = word_set("square squared cubic cubed sq cu units unit per")
LETTERS = word_set("m s g h l L N J W V K C F")  # units of one letter
# Words behind a number that make it something else than that number.
QUALIFIERS = word_set("not at most least more less than fewer over under about around up to minus plus times by")


def canonical_unit(word: str) -> str | None:
    """The canonical name of a unit in the table, else None."""
    return _KNOWN.get(word.lower())
