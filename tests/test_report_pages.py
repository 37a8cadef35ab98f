"""The pages that the commands write, opened in a headless Chromium and clicked through."""

import sys
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
from headless import find_chromium, open_tab

from vsr_jax.cli import main
from vsr_jax.data.micro import BASE
from vsr_jax.study.policy import load_policy, save_policy


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base with every weight a little off."""
    out = tmp_path_factory.mktemp("moved") / "moved"
    policy = load_policy(BASE)
    keys = iter(jax.random.split(jax.random.key(0), 100))
    noisy = jax.tree.map(lambda x: x + 0.05 * x.std() * jax.random.normal(next(keys), x.shape, x.dtype), policy.params)
    policy.params.update(noisy)
    save_policy(policy, out)
    return out


@pytest.fixture(scope="module")
def pages(moved: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Runs a command in a small form and returns its page."""
    root = tmp_path_factory.mktemp("pages")

    def run(command: str, *args: object) -> Path:
        out = root / command
        before = sys.argv
        sys.argv = ["vsr", command, *map(str, args), "--out", str(out)]
        try:
            main()
        finally:
            sys.argv = before
        return out / "index.html"

    small = ("--limit", 3, "--samples", 2, "--max-tokens", 24)
    names = ("--names", "Base", "Moved")
    return {
        "measure": lambda: run("measure", "--model", BASE, moved, "--benchmark", "micro_math", *names, *small),
        "intervene": lambda: run(
            "intervene", "--model", BASE, "--other", moved, "--benchmark", "micro_math", "--sweep", 1, 4, *names, *small
        ),
        "localize": lambda: run(
            "localize", "--models", BASE, moved, *names, "--responses", root / "measure" / "Base" / "micro_math",
            "--positions", "micro",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("command", ["measure", "intervene", "localize"])
def test_responses_can_be_read_on_the_page(command: str, pages, capsys: pytest.CaptureFixture) -> None:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium found; install one or set VSR_CHROMIUM to run this test")
    page = pages[command]()
    capsys.readouterr()
    with open_tab(chromium) as tab:
        tab.open(page.as_uri())
        assert tab.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 200)")
        assert tab.evaluate("document.querySelectorAll('table').length") > 1
        if tab.evaluate("document.querySelectorAll('[data-cell]').length"):
            tab.evaluate("[...document.querySelectorAll('[data-cell]')].find(e => +e.innerText > 0).click()")
        tab.click("[data-prompt]")
        prompt = tab.evaluate("document.querySelector('.prompt').innerText")
        assert "What is the result" in prompt
        texts = tab.evaluate("[...document.querySelectorAll('.response pre')].map(e => e.innerText)")
        assert texts
        assert all(text.strip() for text in texts)
        marks = {"intervene": "forced", "localize": "high_js"}
        if command in marks:
            seen = "document.querySelectorAll('.response mark').length"
            for policy in tab.evaluate("[...document.querySelectorAll('[data-policy]')].map(e => e.dataset.policy)"):
                tab.click(f'[data-policy="{policy}"]')
                if tab.evaluate(seen):
                    break
            assert tab.evaluate(f"document.querySelectorAll('.response mark.{marks[command]}').length") > 0
        assert [address for address in tab.requests if not address.startswith(("file://", "data:"))] == []
        assert tab.errors == []
