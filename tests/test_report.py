"""Tables, the page and the paper's numbers. All numbers here are made up."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import matplotlib.image
import numpy as np
import pytest

from vsr_jax import report
from vsr_jax.report.files import write_atomic

HOSTILE = '</script><script>alert(1)</script><!-- \u2028 <img src=x onerror=alert(2)> & "quotes" \'`x`'
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Parses a page; complains about elements that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.scripts, self.text = [], [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text += data


@pytest.fixture
def flow():
    return report.Flow("Base", "Math-RLVR", [[4, 6, 0], [9, 31, 3], [0, 0, 11]], "Instructions")


def rollout(**changes):
    row = {
        "policy": "Base", "prompt_id": "p0", "prompt": "Say hello.", "sample_id": 0, "text": "hello", "passed": True,
        "opening": "Other", "finish_reason": "eos", "constraints": [("keywords:existence", True)],
    }  # fmt: skip
    return row | changes


class TestTables:
    table = report.Table(
        (
            report.Column("policy", "Policy"),
            report.Column("n", "n"),
            report.Column("best", "best@32"),
            report.Column("delta", "Δ", digits=2, signed=True),
        ),
        (
            {"policy": "Base", "n": 64, "best": report.Estimate(0.8441, 0.75, 0.9219), "delta": None},
            {"policy": "a|b <i>", "n": 64, "best": report.Estimate(0.5, 0.25, 0.75), "delta": -0.347},
            {"policy": "c, \"d\"", "n": 0, "best": 1.0, "delta": 0.05},
        ),
        "Support & such",
    )  # fmt: skip

    def test_csv_reads_back(self):
        rows = list(csv.reader(io.StringIO(report.to_csv(self.table))))
        assert rows[0] == ["policy", "n", "best", "best_low", "best_high", "delta"]
        assert rows[1] == ["Base", "64", "0.844", "0.750", "0.922", ""]
        assert rows[2] == ["a|b <i>", "64", "0.500", "0.250", "0.750", "-0.35"]
        assert rows[3] == ['c, "d"', "0", "1.000", "", "", "+0.05"]

    def test_markdown(self):
        lines = report.to_markdown(self.table).splitlines()
        assert lines[0] == "Support & such"
        assert lines[2] == "| Policy | n | best@32 | Δ |"
        assert lines[3] == "| --- | ---: | ---: | ---: |"
        assert lines[4] == "| Base | 64 | 0.844 [0.750, 0.922] | – |"
        assert lines[5].startswith("| a\\|b <i> |")
        assert lines[5].endswith("| −0.35 |")

    def test_html_is_escaped_and_aligned(self):
        html = report.to_html(self.table)
        page = Page(str(html))
        assert "i" not in page.tags
        assert "a|b &lt;i&gt;" in html
        assert "<caption>Support &amp; such</caption>" in html
        assert '<td class="number">0.844 <span class="interval">[0.750, 0.922]</span></td>' in html
        assert "<td>Base</td>" in html

    @pytest.mark.parametrize(
        ("cell", "text"),
        [
            (float("nan"), "–"), (float("inf"), "+∞"), (float("-inf"), "−∞"), (None, "–"), (True, "yes"),
            (np.bool_(False), "no"), (np.float64(0.1), "+0.100"), (np.int64(3), "+3"), (0, "0"), (-0.0001, "0.000"),
            (0.0001, "0.000"), (-2, "−2"), ("-", "-"), ("", "–"),
        ],
    )  # fmt: skip
    def test_cells(self, cell, text):
        from vsr_jax.report.tables import format_cell

        assert format_cell(cell, report.Column("x", "x", signed=True)) == text

    def test_written_whole(self, tmp_path):
        paths = report.write_table(self.table, tmp_path / "t")
        assert [path.name for path in paths] == ["t.csv", "t.md"]
        assert paths[0].read_text() == report.to_csv(self.table)

    def test_refuses(self):
        with pytest.raises(ValueError, match="row 0 of table 'x' has no cell 'b'"):
            report.Table((report.Column("a", "a"), report.Column("b", "b")), ({"a": 1},), "x")
        with pytest.raises(ValueError, match="different keys"):
            report.Table((report.Column("a", "a"), report.Column("a", "b")), ())


class TestPage:
    @pytest.fixture
    def sections(self, flow):
        return [
            report.Section(
                "Results",
                [
                    report.Prose("One `best@k`.\n\nTwo <b>."),
                    TestTables.table,
                    report.Callout("Few answers.", "warning"),
                    report.picture(report.bucket_flow([flow]), "flows of prompts", "A caption."),
                    report.Details("More", [report.Prose("Inside."), TestTables.table]),
                ],
            ),
            report.Section("Results", [report.Prose("Again.")]),
            report.browser_section([rollout(), rollout(sample_id=1, passed=False)], intro="Choose."),
        ]

    def test_is_one_file_that_fetches_nothing(self, sections, tmp_path):
        path = report.write_page(tmp_path / "out", "Study", sections, subtitle="Seed 0")
        assert path == tmp_path / "out" / "index.html"
        assert [entry.name for entry in path.parent.iterdir()] == ["index.html"]
        text = path.read_text()
        page = Page(text)
        for tag, name, value in page.attributes:
            if name in ("src", "href", "action", "srcset", "data"):
                assert value.startswith(("data:image/png;base64,", "#")), (tag, name, value[:60])
        assert "link" not in page.tags
        assert "iframe" not in page.tags
        assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest|import\(", text)
        policy = next(value for tag, name, value in page.attributes if name == "content" and "default-src" in value)
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy

    def test_contents_lead_to_sections(self, sections):
        page = Page(report.render_page("Study", sections))
        targets = [value[1:] for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
        assert targets == ["results", "results-2", "rollout-browser"]
        ids = [value for _, name, value in page.attributes if name == "id"]
        assert set(targets) <= set(ids)
        assert len(ids) == len(set(ids))

    def test_blocks_arrive(self, sections):
        text = report.render_page("Study", sections)
        assert "<code>best@k</code>" in text
        assert "<p>Two &lt;b&gt;.</p>" in text
        assert '<div class="warning"><p>Few answers.</p>' in text
        assert "<summary>More</summary>" in text
        assert "<figcaption>A caption.</figcaption>" in text
        assert text.count("<table>") == 2

    def test_pictures_are_pngs(self, sections):
        import base64

        page = Page(report.render_page("Study", sections))
        sources = [value for tag, name, value in page.attributes if (tag, name) == ("img", "src")]
        assert len(sources) == 1
        pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(sources[0].partition(",")[2])))
        assert pixels.std() > 0.05

    def test_hostile_text_stays_text(self, flow):
        hostile = rollout(policy=HOSTILE, prompt_id=HOSTILE, prompt=HOSTILE, text=HOSTILE, opening=HOSTILE,
                          status=HOSTILE, finish_reason=HOSTILE, constraints=[(HOSTILE, False)])  # fmt: skip
        table = report.Table((report.Column("a", HOSTILE),), ({"a": HOSTILE},), HOSTILE)
        sections = [
            report.Section(
                HOSTILE,
                [
                    report.Prose(HOSTILE), report.Callout(HOSTILE), table, report.Details(HOSTILE, [table]),
                    report.picture(report.bucket_flow([flow]), HOSTILE, HOSTILE),
                ],
            ),
            report.browser_section([hostile], heading=HOSTILE, intro=HOSTILE),
        ]  # fmt: skip
        text = report.render_page(HOSTILE, sections, subtitle=HOSTILE)
        page = Page(text)
        assert page.tags.count("script") == 2  # the data and the page's own
        assert page.tags.count("img") == 1
        assert not any(name.startswith("on") for _, name, _ in page.attributes)
        assert "alert(1)</script>" not in text.replace("alert(1)&lt;/script&gt;", "")
        data = json.loads(page.scripts[0])
        assert data["prompts"][0]["responses"][0][0]["text"] == HOSTILE
        assert data["policies"] == [HOSTILE]

    def test_a_page_without_browser_has_no_script(self):
        page = Page(report.render_page("Study", [report.Section("a", [report.Prose("b")])]))
        assert "script" not in page.tags

    def test_a_browser_inside_details_gets_its_script(self):
        browser = report.browser_section([rollout()])
        page = Page(report.render_page("Study", [report.Section("a", [report.Details("b", browser.blocks)])]))
        assert page.tags.count("script") == 2

    def test_refuses_an_empty_page(self, tmp_path):
        with pytest.raises(ValueError, match="at least one section"):
            report.write_page(tmp_path, "Study", [])
        assert list(tmp_path.iterdir()) == []


class TestBrowserData:
    def data(self, rows, **options):
        return report.browser_section(rows, **options).blocks[-1].data

    def test_buckets_and_counts(self):
        rows = [
            *[rollout(sample_id=i, passed=i > 0) for i in range(2)],
            *[rollout(policy="IF-RLVR", sample_id=i, passed=True) for i in range(2)],
            rollout(prompt_id="p1", sample_id=0, passed=False),
            rollout(prompt_id="p1", sample_id=1, passed=None, status="timeout"),
            rollout(policy="IF-RLVR", prompt_id="p1", passed=False),
        ]
        data = self.data(rows)
        assert data["policies"] == ["Base", "IF-RLVR"]
        first, second = data["prompts"]
        assert first["buckets"] == ["mixed", "all_correct"]
        assert first["passes"] == [[1, 2], [2, 2]]
        assert second["buckets"] == ["incomplete", "incomplete"]  # a time-out; a sample that is not there
        assert second["passes"] == [[0, 1], [0, 1]]
        assert second["responses"][0][1]["status"] == "timeout"
        assert self.data(rows, asked=3)["prompts"][0]["buckets"] == ["incomplete", "incomplete"]

    def test_samples_come_in_order(self):
        data = self.data([rollout(sample_id=i, text=str(i)) for i in (2, 0, 1)])
        assert [response["text"] for response in data["prompts"][0]["responses"][0]] == ["0", "1", "2"]

    def test_long_responses_are_cut_and_say_so(self):
        segments = [("Let", "forced"), (" us", "forced"), (" go on", ""), ("!", "high_js")]
        rows = [
            rollout(text="x" * 30),
            rollout(sample_id=1, text="Let us go on!", segments=segments),
            rollout(sample_id=2, text="x" * 10),
        ]
        first, second, third = self.data(rows, max_chars=10)["prompts"][0]["responses"][0]
        assert (first["text"], first["cut"]) == ("x" * 10, 20)
        assert second["segments"] == [["Let us", "forced"], [" go ", ""]]
        assert second["cut"] == 3
        assert (third["text"], third.get("cut")) == ("x" * 10, None)

    @pytest.mark.parametrize(
        ("rows", "complaint"),
        [
            ([], "at least one rollout"),
            ([{"policy": "Base"}], "lacks the field 'prompt_id'"),
            ([rollout(), rollout()], "sample of prompt 'p0' twice"),
            ([rollout(segments=[("hell", "")])], "do not spell out"),
            ([rollout(segments=[("hello", "bold")])], "unknown mark 'bold'"),
        ],
    )
    def test_refuses(self, rows, complaint):
        with pytest.raises(ValueError, match=complaint):
            report.browser_section(rows)

    def test_refuses_more_samples_than_asked(self):
        with pytest.raises(ValueError, match="2 samples but only 1"):
            report.browser_section([rollout(), rollout(sample_id=1)], asked=1)


class TestPaper:
    def test_lookup(self):
        found = report.paper_value("1", "Qwen3-8B-Base", "IFEval", "Math-RLVR final minus Base", "delta_best@32")
        assert found is not None
        assert (found.value, found.unit, found.number) == (-0.098, "fraction", -0.098)
        full = report.paper_value(found.experiment, found.model, found.benchmark, found.condition, found.metric)
        assert full == found
        assert report.paper_value("1", "Qwen3-8B-Base", "AIME", "Base", "mean@32") is None
        assert report.paper_value("7", found.model, found.benchmark, found.condition, found.metric) is None

    def test_shares_are_fractions(self):
        points = report.paper_value("8", "Qwen3-8B-Base", "MathIF", "Math-RLVR minus Base", "delta_C")
        assert points is not None
        assert (points.value, points.unit) == (11.3, "percentage points")
        assert points.number == pytest.approx(0.113)
        sentence = next(entry for entry in report.PAPER_VALUES if entry.unit == "qualitative")
        assert sentence.number is None

    def test_every_entry_can_be_looked_up(self):
        for entry in report.PAPER_VALUES:
            key = (entry.model, entry.benchmark, entry.condition, entry.metric)
            assert report.paper_value(entry.experiment, *key) == entry

    def test_has_the_values_of_the_reference_file(self, shared_dir):
        shipped = json.loads(Path(report.__file__).with_name("paper_reference.json").read_text())
        reference = json.loads((shared_dir / "data/paper_reference.json").read_text())
        same = ("experiment", "metric", "value", "unit")  # the words for what is not stated are our own
        assert [{name: entry[name] for name in same} for entry in shipped] == [
            {name: entry[name] for name in same} for entry in reference
        ]

    def test_side_by_side(self):
        delta = report.paper_value("1", "Qwen3-8B-Base", "IFEval", "Math-RLVR final minus Base", "delta_pass@1")
        pair = next(entry for entry in report.PAPER_VALUES if isinstance(entry.value, list))
        assert delta is not None
        table = report.side_by_side([report.Comparison(delta, -0.01), report.Comparison(pair, 3.0)], "Beside")
        first, second = csv.DictReader(io.StringIO(report.to_csv(table)))
        assert (first["paper"], first["ours"], first["difference"], first["sign_agrees"]) == (
            "0.065", "-0.010", "-0.075", "no",
        )  # fmt: skip
        assert second["paper"] == ", ".join(f"{item:g}" for item in pair.value)
        assert (second["difference"], second["sign_agrees"]) == ("", "")


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    target = tmp_path / "page.html"
    write_atomic(target, "old")

    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
