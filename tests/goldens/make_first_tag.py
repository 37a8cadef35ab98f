"""Cuts the part-of-speech model of NLTK down to what can decide the tag of a text's first token.

    python tests/goldens/make_first_tag.py DIR

DIR holds NLTK's data package `averaged_perceptron_tagger_eng` (MIT licence), unpacked:
its `.weights.json`, `.tagdict.json` and `.classes.json`. The tag of the first token depends
on that token and the two after it alone, so features of earlier tokens other than the start
markers are dropped. Weights have three decimals and are kept as whole thousandths.

Writes `vsr_jax/verifiers/assets/first_tag.json.gz`: `classes`, the tags in ascending order;
`known`, the tags of unambiguous words; `start`, the summed weights of the features that every
first token has, one a tag; and for each feature family a map from value to alternating tag
index and weight.
"""

import gzip
import json
import sys
from pathlib import Path

ALWAYS = (
    "bias",
    "i-1 tag -START-",
    "i-2 tag -START2-",
    "i tag+i-2 tag -START- -START2-",
    "i-1 word -START2-",
    "i-1 suffix T2-",
    "i-2 word -START-",
)
FAMILIES = {
    "i suffix ": "suffix",
    "i pref1 ": "prefix",
    "i word ": "word",
    "i-1 tag+i word -START- ": "opening_word",
    "i+1 word ": "next_word",
    "i+1 suffix ": "next_suffix",
    "i+2 word ": "second_next_word",
}
TARGET = Path(__file__).resolve().parents[2] / "vsr_jax" / "verifiers" / "assets" / "first_tag.json.gz"


def _read(directory: Path, part: str):
    return json.loads((directory / f"averaged_perceptron_tagger_eng.{part}.json").read_text(encoding="utf-8"))


def main(directory: Path) -> None:
    weights = _read(directory, "weights")
    classes = sorted(_read(directory, "classes"))
    index = {tag: i for i, tag in enumerate(classes)}
    start = [0] * len(classes)
    for feature in ALWAYS:
        for tag, weight in weights.get(feature, {}).items():
            start[index[tag]] += round(weight * 1000)
    model = {"classes": classes, "known": _read(directory, "tagdict"), "start": start}
    model |= {name: {} for name in FAMILIES.values()}
    for feature in sorted(weights):
        prefix = next((p for p in FAMILIES if feature.startswith(p)), None)
        if prefix is not None:
            pairs = [[index[tag], round(weight * 1000)] for tag, weight in sorted(weights[feature].items())]
            model[FAMILIES[prefix]][feature[len(prefix) :]] = [n for pair in pairs for n in pair]
    text = json.dumps(model, ensure_ascii=True, separators=(",", ":"))
    TARGET.write_bytes(gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
