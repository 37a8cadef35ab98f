"""`vsr openings`: how opening rules agree with a reader's labels."""

from pathlib import Path

from vsr_jax import report
from vsr_jax.data.records import Record, read_jsonl
from vsr_jax.report import Column, Table
from vsr_jax.support import DEFAULT_RULES, classify_opening, load_rules, opening_confusion
from vsr_jax.support.openings import PROMPT_KINDS, PromptKind

_SHOWN = 20


def openings(labels: Path, rules: Path | None) -> str:
    """The confusion report of a labelled file, as text.

    Args:
      labels: JSONL with `text`, `label`, and optionally `prompt_kind` (math or instructions; math when absent) and
        `keywords`, the words that the prompt asks for.
      rules: opening rules; the shipped ones when None.

    Raises:
      UserError: an unreadable file, or a row with a label or prompt kind that does not exist.
    """
    chosen = DEFAULT_RULES if rules is None else load_rules(rules)
    records = read_jsonl(labels)
    texts = [record.text("text") for record in records]
    wanted = [_label(record, chosen.names) for record in records]
    found = [
        classify_opening(text, prompt_kind=_kind(record), rules=chosen, keywords=_keywords(record))
        for record, text in zip(records, texts, strict=True)
    ]
    table = opening_confusion(wanted, found, rules=chosen)
    rows = []
    for i, name in enumerate(chosen.names):
        labelled, said, both = int(table[i].sum()), int(table[:, i].sum()), int(table[i, i])
        rows.append(
            {
                "label": name,
                **dict(zip(chosen.names, table[i].tolist(), strict=True)),
                "recall": both / labelled if labelled else None,
                "precision": both / said if said else None,
            }
        )
    columns = [
        Column("label", "Label"),
        *(Column(name, f"said {name}", digits=0) for name in chosen.names),
        Column("recall", "recall"),
        Column("precision", "precision"),
    ]
    agreed = int(table.trace())
    caption = f"{agreed} of {len(texts)} openings as labelled."
    wrong = [
        {"where": record.where, "label": label, "said": said, "text": text.strip()[:60]}
        for record, text, label, said in zip(records, texts, wanted, found, strict=True)
        if label != said
    ]
    parts = [report.to_markdown(Table(columns, rows, caption))]
    if wrong:
        names = [Column("where", "Row"), Column("label", "Label"), Column("said", "Said"), Column("text", "Begins")]
        parts.append(
            report.to_markdown(Table(names, wrong[:_SHOWN], f"Disagreements, {min(_SHOWN, len(wrong))} shown."))
        )
    return "\n".join(parts)


def _label(record: Record, names: tuple[str, ...]) -> str:
    label = record.text("label")
    if label not in names:
        record.fail("label", f"is {label!r}, must be one of {', '.join(names)}")
    return label


def _kind(record: Record) -> PromptKind:
    kind = record.fields.get("prompt_kind", "math")
    if kind not in PROMPT_KINDS:
        record.fail("prompt_kind", f"is {kind!r}, must be one of {', '.join(PROMPT_KINDS)}")
    return kind


def _keywords(record: Record) -> list[str]:
    return record.items("keywords", str) if "keywords" in record.fields else []
