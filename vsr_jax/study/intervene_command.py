"""`vsr intervene`: what forced openings do to a policy."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vsr_jax import report
from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError
from vsr_jax.mechanism.first_token import FirstTokens, first_tokens
from vsr_jax.mechanism.intervene import (
    MICRO_TEXTS,
    RECIPE_TEXTS,
    Forcing,
    Seam,
    Texts,
    free,
    frequent_tokens,
    matched_ids,
    other_first,
    own_second,
    text_forcing,
    text_ids,
)
from vsr_jax.mechanism.localize import check_same_tokens
from vsr_jax.sampling.types import SamplerStats
from vsr_jax.study.intervene import effects, sample_conditions
from vsr_jax.study.intervene_report import Direction, write_report
from vsr_jax.study.measure import MeasureSettings
from vsr_jax.study.policy import Policy
from vsr_jax.study.runs import claim_folder
from vsr_jax.study.sources import MICRO, load_policies, load_rows, task_defaults
from vsr_jax.support.openings import OpeningRules
from vsr_jax.verifiers import Pool

CONDITIONS = ("other", "second", "dri", "dai", "neutral", "frequent")
"""Names on the command line, besides `free`, which is always there."""


def intervene(
    model: str,
    benchmark: str,
    out: Path,
    *,
    other: str,
    names: tuple[str, ...],
    reverse: bool,
    conditions: tuple[str, ...],
    text: tuple[str, ...],
    sweep: tuple[int, ...],
    seam: Seam,
    data: Path | None,
    limit: int | None,
    spread: bool,
    framing: str,
    rules: Path | None,
    dtype: str,
    workers: int,
    deadline: float,
    revision: str | None,
    max_position: int | None,
    mesh: str,
    **decoding: Any,
) -> str:
    """Intervenes and returns what to print. Arguments are those of the command.

    Writes a folder of rollouts a condition, tables, figures and `index.html` into `out`.
    """
    _check(other, reverse, conditions, sweep)
    rows = load_rows(benchmark, data, limit, spread=spread)
    loading = {"dtype": dtype, "revision": revision, "max_position": max_position}
    policies = load_policies([model, *([other] if other else [])], names, mesh=mesh, **loading)
    check_same_tokens([p.name for p in policies], [p.tokenizer for p in policies], [p.config for p in policies])
    defaults = task_defaults(policies[0], benchmark, rows[0], framing, rules)
    settings = MeasureSettings(
        framing=defaults.framing, require_stop=defaults.require_stop, extract=defaults.extract, **decoding
    )
    texts = MICRO_TEXTS if benchmark in MICRO else RECIPE_TEXTS
    chosen = conditions or tuple(name for name in CONDITIONS if other or name != "other")
    content = {
        "model": model, "other": other, "benchmark": benchmark, "rows": [row.id for row in rows],
        "conditions": chosen, "text": text, "sweep": sweep, "seam": seam, "texts": vars(texts),
        "stop_ids": policies[0].stop_ids, "settings": vars(settings) | {"rows": None}, **loading,
    }  # fmt: skip
    claim_folder(out, content)
    firsts = [_first_tokens(policy, rows, settings) for policy in policies]
    orders = [(0, 1), (1, 0)] if reverse else [(0, 1 if other else None)]
    directions, costs = [], []
    with Pool(workers, deadline) if workers else nullcontext() as pool:
        for decoded, source in orders:
            policy = policies[decoded]
            forcings = _forcings(
                policy, rows, settings, chosen, text, sweep, seam, texts,
                firsts[decoded], None if source is None else firsts[source],
            )  # fmt: skip
            folder = out / f"{policy.name}"
            cost: list[SamplerStats] = []
            tables = _sample(policy, rows, forcings, settings, folder, defaults.rules, pool.map if pool else None, cost)
            costs.append(cost)
            directions.append(
                Direction(
                    policy=policy,
                    source="" if source is None else policies[source].name,
                    forcings=forcings,
                    effects=effects(
                        tables, rows, forcings, settings.samples,
                        policy=policy.name, benchmark=benchmark, rules=defaults.rules,
                    ),
                    tables=tables,
                )
            )  # fmt: skip
    page, made = write_report(out, directions, rows, settings.samples, _setting(directions, benchmark, settings, seam))
    notes = [
        f"{d.policy.name}: {sum(map(len, d.tables.values()))} responses of {len(d.forcings)} conditions in one queue"
        + "".join(f", slot occupancy {one.occupancy:.1%}, {one.seconds:.1f} s" for one in cost)
        for d, cost in zip(directions, costs, strict=True)
    ]
    return "\n".join([report.to_markdown(made["effects"]), *notes, f"report: {page}"])


def _check(other: str, reverse: bool, conditions: Sequence[str], sweep: Sequence[int]) -> None:
    for name in conditions:
        if name not in CONDITIONS:
            raise UserError(f"--conditions {name}: unknown; choose from {', '.join(CONDITIONS)}")
    needs = "other" if "other" in conditions else "--sweep" if sweep else "--reverse" if reverse else ""
    if needs and not other:
        raise UserError(f"{needs} forces another policy's token; name it with --other")
    if any(position < 1 for position in sweep):
        raise UserError("--sweep: positions count from 1")


def _first_tokens(policy: Policy, rows: Sequence[Row], settings: MeasureSettings) -> FirstTokens:
    return first_tokens(policy.config, policy.params, [policy.encode(row, settings.framing) for row in rows], k=2)


def _forcings(
    policy: Policy,
    rows: Sequence[Row],
    settings: MeasureSettings,
    conditions: Sequence[str],
    text: Sequence[str],
    sweep: Sequence[int],
    seam: Seam,
    texts: Texts,
    own: FirstTokens,
    other: FirstTokens | None,
) -> list[Forcing]:
    count, tokenizer = len(rows), policy.tokenizer
    found = [free(count)]
    dri, dri_text = text_ids(tokenizer, texts.dri, seam)
    for name in conditions:
        match name:
            case "other":
                assert other is not None
                found.append(other_first(other))
            case "second":
                found.append(own_second(own))
            case "dri":
                found.append(text_forcing("DRI prefix", dri, dri_text, count))
            case "dai":
                found.append(text_forcing("DAI prefix", *text_ids(tokenizer, texts.dai, seam), count))
            case "neutral":
                found.append(
                    text_forcing("neutral prefix, as long", *matched_ids(tokenizer, texts.neutral, len(dri)), count)
                )
            case _:
                prompts = [policy.encode(row, settings.framing) for row in rows]
                ids = [row.id for row in rows]
                found.append(frequent_tokens(tokenizer, prompts, ids, settings.seed, policy.stop_ids))
    found += [text_forcing(f"text {piece.strip()}", *text_ids(tokenizer, piece, seam), count) for piece in text]
    known = {forcing.name for forcing in found}
    for position in sweep:
        assert other is not None
        forcing = other_first(other, position)
        found += [forcing] if forcing.name not in known else []
    return found


def _sample(
    policy: Policy,
    rows: Sequence[Row],
    forcings: Sequence[Forcing],
    settings: MeasureSettings,
    folder: Path,
    rules: OpeningRules | None,
    verify: Any,
    cost: list[SamplerStats],
):
    """Samples with a bar; `cost` gets what it took, if anything was sampled."""
    with tqdm(total=len(forcings) * len(rows) * settings.samples, unit="response", file=sys.stderr) as bar:
        bar.set_description(policy.name, refresh=False)

        def progress(done: int, total: int) -> None:
            bar.update(done - bar.n)

        return sample_conditions(
            policy,
            rows,
            forcings,
            settings,
            folder,
            rules=rules,
            verify=verify,
            progress=progress,
            on_stats=cost.append,
        )


def _setting(directions: Sequence[Direction], benchmark: str, settings: MeasureSettings, seam: Seam) -> str:
    decoded = "; ".join(
        f"{d.policy.name} decodes" + (f", tokens of {d.source} are forced on it" if d.source else "")
        for d in directions
    )
    rule = "are left to the policy" if seam == "moved" else "are forced too"
    return (
        f"{decoded}. {benchmark}, {settings.samples} samples a prompt at temperature {settings.temperature:g} and "
        f"top-p {settings.top_p:g}, seed {settings.seed}. Forced text is encoded apart from the prompt; blanks at its "
        f"end {rule}. The neutral prefix is cut to as many tokens as the DRI prefix."
    )
