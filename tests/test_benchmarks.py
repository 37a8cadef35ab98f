"""Benchmark loaders: the public files load as rows, and every way in which a file can be wrong is named."""

import copy
import hashlib
import json
import sys
import types

import pytest

from vsr_jax.data.aime import ANSWERS
from vsr_jax.data.benchmarks import BENCHMARKS, load_benchmark
from vsr_jax.data.literal import parse_literal
from vsr_jax.data.overlap import normalise, overlap
from vsr_jax.data.rows import Row
from vsr_jax.errors import UserError

FULL = {
    "math_train": "math/math_train_7500.jsonl",
    "math500": "math/math500_test.jsonl",
    "math500_128": "math/math500_test.jsonl",
    "aime24": "aime/aime24.jsonl",
    "aime25": "aime/aime25.jsonl",
    "gsm8k": "gsm8k/test.jsonl",
    "ifeval": "ifeval/input_data.jsonl",
    "ifbench": "ifbench/IFBench_test.jsonl",
    "mathif": "mathif/mathif.jsonl",
    "reasonif": "reasonif/reasonif.jsonl",
    "iftrain": "iftrain/synthetic_iftrain_format.jsonl",
}
SAMPLED = ("math_train", "math500", "gsm8k", "ifeval", "ifbench", "iftrain", "mathif")


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def aime_year(name):
    """A well-formed year with problems of our own."""
    return [
        {"id": index, "problem": f"How many ways lead through gate {index}?", "solution": "", "answer": f"{answer:03d}"}
        for index, answer in enumerate(ANSWERS[name])
    ]


def refused(name, path, message):
    with pytest.raises(UserError, match=message) as caught:
        load_benchmark(name, path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FULL)
def test_the_public_files_load_whole(name, shared_dir):
    with warnings_for(name):
        rows = load_benchmark(name, shared_dir / "data" / FULL[name])
    expected = {"math500_128": 128, "iftrain": 2000}.get(name, BENCHMARKS[name].rows)
    assert len(rows) == expected == len({row.id for row in rows})
    for row in rows:
        assert row.prompt.strip()
        assert len(row.instruction_ids) == len(row.kwargs)
        assert (row.task == "instructions") == (row.gold is None) == (name in ("ifeval", "ifbench", "iftrain"))
        assert (row.task == "math") == (not row.instruction_ids)
        assert all(value is not None for kwargs in row.kwargs for value in kwargs.values())


def warnings_for(name):
    import contextlib

    return pytest.warns(UserWarning, match="of the 95373") if name == "iftrain" else contextlib.nullcontext()


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_load_with_a_warning_that_rows_are_missing(name, samples_dir):
    path = samples_dir / "benchmarks" / f"{name}.jsonl"
    with pytest.warns(UserWarning, match=f"rows of the {BENCHMARKS[name].rows}"):
        rows = load_benchmark(name, path)
    assert [dict(row.source) for row in rows] == read(path)
    assert len({row.id for row in rows}) == len(rows)


@pytest.mark.filterwarnings("ignore:.*rows of the")
class TestSamples:
    """The content of rows, on the committed samples."""

    def load(self, samples_dir, name):
        return load_benchmark(name, samples_dir / "benchmarks" / f"{name}.jsonl")

    def test_empty_and_broken_math_golds_are_corrected(self, samples_dir):
        golds = {row.source["unique_id"]: row.gold for row in self.load(samples_dir, "math_train")}
        assert golds["train/number_theory/7115.json"] == "0"
        assert golds["train/number_theory/7117.json"] == "0"
        assert golds["train/algebra/24014.json"] == "2"

    def test_math_train_without_an_answer_field_takes_the_last_box(self, samples_dir, tmp_path):
        records = read(samples_dir / "benchmarks" / "math_train.jsonl")
        bare = [{key: r[key] for key in ("problem", "solution", "level", "type")} for r in records]
        rows = load_benchmark("math_train", write(tmp_path / "hub.jsonl", bare))
        assert [row.gold for row in rows] == [row.gold for row in self.load(samples_dir, "math_train")]

    def test_an_unknown_empty_gold_is_refused(self, samples_dir, tmp_path):
        records = read(samples_dir / "benchmarks" / "math_train.jsonl")
        records.sort(key=lambda record: record["answer"])  # those without an answer first
        records[0] |= {"problem": "Another problem?"}
        refused("math_train", write(tmp_path / "m.jsonl", records), r"m\.jsonl:1: answer: is empty")
        del records[0]["answer"]
        records[0]["solution"] = r"So it is $\boxed{}$."
        refused("math_train", write(tmp_path / "m.jsonl", records), r"m\.jsonl:1: solution: has no boxed answer")

    def test_gsm8k_gold_is_the_number_after_the_mark(self, samples_dir):
        golds = [row.gold for row in self.load(samples_dir, "gsm8k")]
        assert "2125" in golds
        assert all(str(gold).isdecimal() for gold in golds)

    def test_none_arguments_are_dropped_and_the_record_is_left_alone(self, tmp_path):
        record = {
            "key": 1,
            "prompt": "Say hello.",
            "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
            "kwargs": [
                {"num_highlights": None, "relation": None},
                {"num_words": 0, "relation": "at least", "keyword": None, "flag": False, "text": ""},
            ],
        }
        row = load_benchmark("ifeval", write(tmp_path / "a.jsonl", [record]))[0]
        assert row.kwargs == ({}, {"num_words": 0, "relation": "at least", "flag": False, "text": ""})
        assert row.source == record

    def test_iftrain_constraints_come_from_the_literal(self, samples_dir):
        rows = self.load(samples_dir, "iftrain")
        assert {row.suite for row in rows} == {"iftrain"}
        for row in rows:
            truth = parse_literal(row.source["ground_truth"])[0]
            assert list(row.instruction_ids) == truth["instruction_id"]
            assert [dict(kwargs) for kwargs in row.kwargs] == [kwargs or {} for kwargs in truth["kwargs"]]
            assert row.prompt == row.source["messages"][0]["content"]

    def test_mathif_prompt_holds_question_and_constraints(self, samples_dir):
        for row in self.load(samples_dir, "mathif"):
            assert row.prompt.startswith(row.source["question"])
            assert row.prompt.endswith(row.source["constraint_desc"][-1])
            assert (row.task, row.suite, row.gold) == ("joint", "mathif", row.source["answer"])

    def test_limit_and_seed(self, samples_dir):
        path = samples_dir / "benchmarks" / "ifeval.jsonl"
        rows = self.load(samples_dir, "ifeval")
        assert load_benchmark("ifeval", path, limit=3) == rows[:3]
        shuffled = load_benchmark("ifeval", path, seed=1)
        assert shuffled != rows
        assert sorted(row.id for row in shuffled) == sorted(row.id for row in rows)
        assert load_benchmark("ifeval", path, seed=1, limit=2) == shuffled[:2]

    def test_repeated_ids_are_refused(self, samples_dir, tmp_path):
        records = read(samples_dir / "benchmarks" / "ifeval.jsonl")
        refused("ifeval", write(tmp_path / "a.jsonl", [*records, records[2]]), "id ifeval/.* is the same as at .*:3")

    def test_reasonif(self, tmp_path):
        record = {
            "question": "What is 3 + 4?",
            "answer": " 7",
            "constraint_name": ["punctuation:no_comma"],
            "constraint_args": [None],
            "prompt": "Think without commas. What is 3 + 4?",
        }
        row = load_benchmark("reasonif", write(tmp_path / "r.jsonl", [record]))[0]
        assert (row.prompt, row.gold, row.kwargs, row.suite) == (record["prompt"], " 7", ({},), "reasonif")


@pytest.mark.parametrize("name", ["aime24", "aime25"])
def test_aime_golds_are_plain_integers(name, tmp_path):
    records = aime_year(name)
    records[3]["answer"] = float(records[3]["answer"])
    rows = load_benchmark(name, write(tmp_path / "a.jsonl", records))
    assert [int(str(row.gold)) for row in rows] == list(ANSWERS[name])
    assert all(row.gold == str(int(str(row.gold))) for row in rows)
    assert rows[3].source["answer"] == records[3]["answer"]


def test_aime_answers_are_those_published():
    # Both years as released, in one hash, so that an edit of the table does not pass unseen.
    text = ";".join(",".join(map(str, ANSWERS[name])) for name in ("aime24", "aime25"))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "42608350af0edb65"
    assert [len(answers) for answers in ANSWERS.values()] == [30, 30]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r[4].update(answer="384"), r"a\.jsonl:5: answer: 384 is not .* missing: 55"),
        (lambda r: r[4].update(answer="1055"), r"a\.jsonl:5: answer: is 1055, .* 0 to 999"),
        (lambda r: r[4].update(answer="55.5"), r"a\.jsonl:5: answer: is '55.5', must be a whole number"),
        (lambda r: r[4].update(answer=float("inf")), r"a\.jsonl:5: answer: is inf"),
        (lambda r: r[4].update(answer=True), r"a\.jsonl:5: answer: is True"),
        (lambda r: r[4].update(problem=r[2]["problem"] + " "), r"a\.jsonl:5: problem: is the same as at .*:3"),
        (lambda r: r[4].update(problem=r"Go. So it is $\boxed{55}$."), r"a\.jsonl:5: problem: holds part of"),
        (lambda r: r.pop(), r"a\.jsonl: has 29 rows, aime24 has 30"),
        (lambda r: r.append({**r[0], "problem": "One more?"}), r"a\.jsonl: has 31 rows"),
        (
            lambda r: r[4].update(problem=r"Let $y=4 g(f(\sin (2 \pi x)))$.", answer="384"),
            r"a\.jsonl:5: answer: is 384, the answer of AIME 2024 I problem 12 is 385",
        ),
    ],
)
def test_a_wrong_aime_row_is_named(change, message, tmp_path):
    records = aime_year("aime24")
    change(records)
    refused("aime24", write(tmp_path / "a.jsonl", records), message)


def test_an_aime_problem_that_holds_its_solution_is_refused(tmp_path):
    records = aime_year("aime24")
    solution = " ".join(f"step{index} follows" for index in range(20))
    records[7] |= {"problem": f"How many? We see that {solution}", "solution": f"Now {solution} and we are done."}
    refused("aime24", write(tmp_path / "a.jsonl", records), r"a\.jsonl:8: problem: holds part of the solution")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows"),
        ("\n\n", "has no rows"),
        ('{"key": 1', r":1: not JSON"),
        ("[1, 2]", r":1: is list, each line must be one JSON object"),
        ("[" * 100_000, r":1: not JSON"),
        ('{"key": 1}', r":1: instruction_id_list: is missing; the row has key"),
        ('{"instruction_id_list": "a", "kwargs": [], "prompt": "p"}', "instruction_id_list: is str, must be a list"),
        ('{"instruction_id_list": [1], "kwargs": [{}], "prompt": "p"}', "instruction_id_list: holds int"),
        ('{"instruction_id_list": [], "kwargs": [], "prompt": "p"}', "kwargs: belongs to no constraint"),
        ('{"instruction_id_list": ["a"], "kwargs": [], "prompt": "p"}', "kwargs: has 0 entries for 1"),
        ('{"instruction_id_list": ["a"], "kwargs": [3], "prompt": "p"}', "kwargs: holds int"),
        ('{"instruction_id_list": ["a"], "kwargs": [{}], "prompt": " "}', "prompt: is empty"),
        ('{"instruction_id_list": ["a"], "kwargs": [{}], "prompt": 3}', "prompt: is int, must be text"),
    ],
)
def test_malformed_files_are_refused(text, message, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    refused("ifeval", path, message)


def test_the_line_of_a_bad_row_counts_blank_lines(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"question": "1 + 1?", "answer": "#### 2", "idx": 0}\n\n{"question": "?", "answer": "two"}\n')
    refused("gsm8k", path, r"bad\.jsonl:3: answer: must end with `#### number`")


def test_missing_and_binary_files_are_refused(tmp_path):
    refused("gsm8k", tmp_path / "none.jsonl", r"none\.jsonl: no such file")
    (tmp_path / "b.jsonl").write_bytes(b'{"a": "\xff"}')
    refused("gsm8k", tmp_path / "b.jsonl", "byte 7 is not UTF-8")
    refused("gsm9k", tmp_path, "benchmark 'gsm9k': unknown; choose one of math_train")
    with pytest.raises(UserError, match="limit: is 0"):
        load_benchmark("gsm8k", tmp_path / "b.jsonl", limit=0)


def test_a_train_split_with_too_many_rows_is_refused(tmp_path):
    records = [{"problem": f"What is {n}?", "answer": str(n), "unique_id": str(n)} for n in range(7501)]
    refused("math_train", write(tmp_path / "big.jsonl", records), r"big\.jsonl: has 7501 rows, math_train has 7500")


@pytest.mark.filterwarnings("ignore:.*rows of the")
@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ("__import__('os').system('true')", "is not a Python literal"),
        ("[{'instruction_id': ['a'], 'kwargs': [open('x')]}]", "is not a Python literal"),
        ("[" * 5000 + "]" * 5000, "is not a Python literal"),
        ("'" + "a" * 100_001 + "'", "at most 100000 are read"),
        ("[{'instruction_id': ['a'], 'kwargs': [None]", "is not a Python literal"),
        ("{[]: 1}", "is not a Python literal"),
        ("[]", "must be a list of one dict"),
        ("[{'kwargs': [None]}]", "instruction_id: is missing"),
        ("[{'instruction_id': ['a', 'b'], 'kwargs': [None]}]", "kwargs: has 1 entries for 2"),
    ],
)
def test_iftrain_ground_truth_is_never_evaluated(truth, message, tmp_path):
    record = {"key": "k", "messages": [{"role": "user", "content": "Hi"}], "ground_truth": truth}
    refused("iftrain", write(tmp_path / "t.jsonl", [record]), rf"t\.jsonl:1: ground_truth: .*{message}")


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "x"}], [{"role": "user", "content": None}]])
def test_iftrain_messages_must_be_one_user_message(messages, tmp_path):
    record = {"key": "k", "messages": messages, "ground_truth": "[{'instruction_id': ['a'], 'kwargs': [None]}]"}
    refused("iftrain", write(tmp_path / "t.jsonl", [record]), "messages: must be one user message")


def test_the_subset_of_math500_follows_its_rule(shared_dir):
    import numpy as np

    path = shared_dir / "data" / FULL["math500"]
    rows = load_benchmark("math500", path)
    levels = np.array([row.source["level"] for row in rows])
    rng = np.random.default_rng(1234)
    drawn = [
        rng.choice(np.flatnonzero(levels == level), count, replace=False)
        for level, count in zip((1, 2, 3, 4, 5), (11, 23, 27, 33, 34), strict=True)
    ]
    expected = {rows[index].id for part in drawn for index in part}
    assert {row.id for row in load_benchmark("math500_128", path)} == expected


def test_the_subset_needs_its_rows(samples_dir):
    with pytest.warns(UserWarning, match="rows of the 500"), pytest.raises(UserError, match="of the 128 rows are miss"):
        load_benchmark("math500_128", samples_dir / "benchmarks" / "math500.jsonl")


def fake_hub(monkeypatch, load):
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load))


@pytest.mark.filterwarnings("ignore:.*rows of the")
def test_the_hub_is_read_part_by_part(monkeypatch, samples_dir):
    records = read(samples_dir / "benchmarks" / "mathif.jsonl")
    calls = []

    def load(dataset, split, data_files):
        calls.append((dataset, split, data_files))
        here = [r for r in copy.deepcopy(records) if f"{r['file']}.jsonl" == data_files]
        for record in here:
            del record["file"]  # the name of the file is not a field of the public data set
        return here

    fake_hub(monkeypatch, load)
    rows = load_benchmark("mathif")
    assert len(calls) == 15
    local = load_benchmark("mathif", samples_dir / "benchmarks" / "mathif.jsonl")
    assert {row.id for row in rows} == {row.id for row in local}
    assert {row.source["file"] for row in rows} == {record["file"] for record in records}


def test_an_unreachable_hub_asks_for_a_file(monkeypatch):
    def load(*_, **__):
        raise ConnectionError("cannot reach the hub\nlong story")

    fake_hub(monkeypatch, load)
    with pytest.raises(UserError, match=r"benchmark aime24: .*\(cannot reach the hub\); give a local JSONL file"):
        load_benchmark("aime24")
    fake_hub(monkeypatch, lambda *_, **__: [])
    with pytest.raises(UserError, match="has no rows"):
        load_benchmark("aime24")


def row(name, prompt):
    return Row(name, prompt, "math", "1")


class TestOverlap:
    """Equal and similar prompts between two sets."""

    prompt = r"Let $x$ be a real number such that $\dfrac{x}{2} + 3 = 7$. Find the value of $x^2 + 1$."

    @pytest.mark.parametrize(
        "other",
        [
            r"Let $x$ be a real number such that $\frac{x}{2}+3=7$. Find the value of $x^2+1$",
            "let  $x$ be a real number\nsuch that \\[\\tfrac{x}{2} + 3 = 7.\\] Find the value of $x^{2} + 1$?",
            r"Let \(x\) be a real number such that \(\displaystyle\frac{x}2 + 3 = 7\). Find the value of \(x^2 + 1\).",
        ],
    )
    def test_other_spellings_are_equal(self, other):
        assert overlap([row("a", self.prompt)], [row("b", other)]).exact == (("a", "b"),)

    def test_other_numbers_and_signs_are_not_equal(self):
        other = self.prompt.replace("7", "9")
        found = overlap([row("a", self.prompt)], [row("b", other), row("c", self.prompt.replace("+ 3", "- 3"))])
        assert found.exact == ()

    def test_a_prompt_inside_a_longer_one_is_similar(self):
        longer = f"Think first. {self.prompt} Use no commas in your whole response and end with a question."
        found = overlap([row("a", self.prompt)], [row("b", longer), row("c", "What is the sum of 1 and 2?")])
        assert (found.exact, found.near) == ((), (("a", "b"),))

    def test_short_prompts_are_never_similar(self):
        assert overlap([row("a", "What is 1 + 1?")], [row("b", "What is 1 + 1, then?")]).near == ()
        assert len(normalise("What is 1 + 1?")) == 5

    def test_known_overlaps_are_found(self, shared_dir):
        def load(name):
            return load_benchmark(name, shared_dir / "data" / FULL[name])

        aime, math_train, mathif = load("aime24"), load("math_train"), load("mathif")
        assert len({a for a, _ in overlap(aime, mathif).near}) == 30
        assert len(overlap(aime, load("reasonif")).near) == 23
        assert len({b for _, b in overlap(load("math500"), mathif).near}) >= 89
        assert overlap(math_train, load("math500")).exact == ()
        assert overlap(math_train, aime) == overlap(math_train, load("aime25")) == overlap([], [])
