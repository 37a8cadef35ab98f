"""One readable file per experiment of the study.

Each has `stages(preset, seed)`, what must be run for it, and `chapter(preset, seeds, root)`, what it reports.
"""

from experiments import (
    exp1_math_rlvr_and_instructions,
    exp2_if_rlvr_and_math,
    exp3_if_then_math,
    exp4_math_then_if,
    exp5_localisation,
    exp6_openings,
    exp7_mitigation,
    exp8_joint,
)

EXPERIMENTS = {
    1: exp1_math_rlvr_and_instructions,
    2: exp2_if_rlvr_and_math,
    3: exp3_if_then_math,
    4: exp4_math_then_if,
    5: exp5_localisation,
    6: exp6_openings,
    7: exp7_mitigation,
    8: exp8_joint,
}
"""The experiments by their number in the study."""
