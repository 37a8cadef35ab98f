"""Clicks through the rollout browser in a headless Chromium."""

import os

import pytest
from headless import find_chromium, open_tab

from vsr_jax import report

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def rollouts():
    """Two policies on three prompts, two samples each: mixed to all-correct, mixed to all-wrong, incomplete."""
    passed = {
        ("Base", "p0"): (True, False), ("IF-RLVR", "p0"): (True, True),
        ("Base", "p1"): (False, True), ("IF-RLVR", "p1"): (False, False),
        ("Base", "p2"): (None, True), ("IF-RLVR", "p2"): (False, False),
    }  # fmt: skip
    for (policy, prompt), marks in passed.items():
        for sample, mark in enumerate(marks):
            text = f"Answer: {policy} {prompt} {sample}"
            yield {
                "policy": policy, "prompt_id": prompt, "prompt": f"Question {prompt}?", "sample_id": sample,
                "text": text + HOSTILE, "passed": mark, "opening": "DAI" if sample else "DRI",
                "status": "timeout" if mark is None else "", "finish_reason": "eos",
                "constraints": [("punctuation:no_comma", bool(mark)), ("startend:quotation", True)],
                "segments": [("Answer:", "forced"), (text[7:], ""), (HOSTILE, "high_js")],
            }  # fmt: skip


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    chromium = find_chromium()
    if chromium is None:
        if os.environ.get("VSR_REQUIRE_CHROMIUM"):
            pytest.fail("VSR_REQUIRE_CHROMIUM is set but no Chromium was found")
        pytest.skip("no Chromium found; install one or set VSR_CHROMIUM to run this test")
    flow = report.bucket_flow([report.Flow("Base", "IF-RLVR", [[0, 0, 0], [1, 0, 1], [0, 0, 0]])])
    sections = [
        report.Section("Flow", [report.picture(flow, "flow")]),
        report.browser_section(rollouts(), heading="Read them"),
    ]
    path = report.write_page(tmp_path_factory.mktemp("page"), "Study", sections)
    with open_tab(chromium) as tab:
        tab.open(path.as_uri())
        yield tab


def shown(tab, selector):
    return tab.evaluate(f"[...document.querySelectorAll('{selector}')].map(e => e.innerText)")


def test_click_through(tab):
    assert shown(tab, ".cells td") == ["0"] * 3 + ["1", "0", "1"] + ["0"] * 3
    assert shown(tab, ".response") == []

    tab.click('[data-cell="mixed>all_correct"]')
    assert shown(tab, "[data-prompt]") == ["p01/2 → 2/2"]
    tab.click('[data-prompt="p0"]')
    assert shown(tab, ".prompt") == ["Question p0?"]
    assert [text.split("\n")[0] for text in shown(tab, ".response .verdict")] == ["passed", "passed"]
    assert shown(tab, ".response pre")[1] == f"Answer: IF-RLVR p0 1{HOSTILE}"

    tab.click('[data-policy="Base"]')
    assert shown(tab, ".response .verdict") == ["passed", "failed"]
    assert shown(tab, ".response pre")[0].startswith("Answer: Base p0 0")
    assert shown(tab, ".response.failed .constraints li") == ["✗ punctuation:no_comma", "✓ startend:quotation"]
    assert shown(tab, ".response mark.forced") == ["Answer:", "Answer:"]
    assert shown(tab, ".response mark.high_js") == [HOSTILE, HOSTILE]

    tab.evaluate(
        "(() => { const s = document.querySelector('select[aria-label=opening]');"
        " s.value = [...s.options].find(o => o.text === 'DAI').value; s.dispatchEvent(new Event('change')); })()"
    )
    assert shown(tab, ".response .verdict") == ["failed"]

    tab.click('[data-cell="incomplete"]')
    tab.click('[data-prompt="p2"]')
    tab.click('[data-policy="Base"]')
    assert shown(tab, ".response .verdict") == ["no verdict", "passed"]
    assert "timeout" in shown(tab, ".response .facts")[0]


def test_pictures_show_and_nothing_else_is_asked_for(tab):
    assert tab.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 400)")
    assert [address for address in tab.requests if not address.startswith(("file://", "data:image/png"))] == []
    assert len([address for address in tab.requests if address.startswith("file://")]) == 1


def test_hostile_text_did_not_run(tab):
    assert tab.evaluate("document.title") == "Study"
    assert tab.evaluate("document.querySelectorAll('main img').length") == 1
    assert tab.errors == []
