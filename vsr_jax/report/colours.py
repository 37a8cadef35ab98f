"""One colour per policy, bucket and opening class, the same in every figure and on the page.

Policies use the palette of Okabe and Ito, buckets and openings the muted one of Paul Tol. Both stay apart under the
common colour-vision deficiencies; within a palette lightness differs too, so that print in grey still reads.
"""

from collections.abc import Iterable
from dataclasses import dataclass

BUCKET_COLOURS = {"all_correct": "#44AA99", "mixed": "#DDCC77", "all_wrong": "#882255", "incomplete": "#BBBBBB"}
BUCKET_TITLES = {
    "all_correct": "All correct",
    "mixed": "Mixed",
    "all_wrong": "All wrong",
    "incomplete": "Incomplete",
}
OPENING_COLOURS = {"DRI": "#332288", "DAI": "#CC6677", "CSI": "#999933", "Other": "#CCCCCC"}
OPENING_TITLES = {
    "DRI": "DRI (deliberates)",
    "DAI": "DAI (answers at once)",
    "CSI": "CSI (constraint surface)",
    "Other": "Other",
}

_KNOWN_POLICIES = {
    "base": "#4D4D4D",
    "math-rlvr": "#0072B2",
    "if-rlvr": "#D55E00",
    "if→math": "#CC79A7",
    "math→if": "#009E73",
}
_FURTHER = ("#56B4E9", "#E69F00", "#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class PolicyStyle:
    """How a policy is drawn; dash and marker repeat what the colour says."""

    colour: str
    dash: str
    marker: str


def policy_styles(names: Iterable[str]) -> dict[str, PolicyStyle]:
    """A style for each policy: fixed for the study's own, the rest of the palette in order of first mention.

    Pass all policies of a report at once, so that each keeps its style in every figure.
    """
    styles: dict[str, PolicyStyle] = {}
    further = 0
    for name in dict.fromkeys(names):
        colour, dash = _KNOWN_POLICIES.get(_plain(name)), "-"
        if colour is None:
            # Past the two unused colours the palette repeats, dashed.
            colour, dash = _FURTHER[further % len(_FURTHER)], "-" if further < 2 else "--"
            further += 1
        styles[name] = PolicyStyle(colour, dash, _MARKERS[len(styles) % len(_MARKERS)])
    return styles


def opening_colour(name: str, position: int = 0) -> str:
    """Colour of an opening class; a class of the user's own takes one by its position."""
    return OPENING_COLOURS.get(name) or ("#88CCEE", "#117733", "#AA4499", "#DDCC77")[position % 4]


def _plain(name: str) -> str:
    return name.casefold().replace("->", "→").replace(" ", "")
