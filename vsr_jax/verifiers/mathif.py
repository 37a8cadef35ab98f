"""The 15 instructions of MathIF (Fu et al. 2025, arXiv:2505.14810), by id: a choice from IFEval.

The reference is `code/constraint_*` of TingchenFu/MathIF at commit 0f92ee5. It drops arguments
that are 0 or empty and draws others at random; here they are values or a malformed row.
"""

from vsr_jax.verifiers.ifeval import IFEVAL, IFEVAL_INTENT, Table

_SHARED = (
    "keywords:existence",
    "keywords:frequency",
    "keywords:forbidden_words",
    "language:response_language",
    "detectable_format:number_bullet_lists",
    "detectable_format:number_highlighted_sections",
    "detectable_format:multiple_sections",
    "combination:repeat_prompt",
    "startend:end_checker",
    "startend:quotation",
    "change_case:capital_word_frequency",
    "change_case:english_capital",
    "change_case:english_lowercase",
    "punctuation:no_comma",
)

MATHIF: Table = {key: IFEVAL[key] for key in _SHARED} | {
    "length_constraint_checkers:number_words": IFEVAL["length_constraints:number_words"],
}
"""The reference reading."""

MATHIF_INTENT: Table = {key: check for key, check in IFEVAL_INTENT.items() if key in MATHIF}
"""What the instruction says, where the reference decides otherwise."""
