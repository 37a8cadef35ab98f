"""Tokenizers: the file as it stands, the stop set, the number of ids, and ids that text cannot give back."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from vsr_jax.data.tokenizer import load_tokenizer, stop_ids, text_of, token_count
from vsr_jax.errors import UserError

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def byte_level(*merges: tuple[str, str]) -> Tokenizer:
    """A byte-level BPE built as Qwen's: 256 bytes, the merges, then added tokens."""
    vocab = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return tokenizer


def word_level(vocab: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    return tokenizer


def write(directory: Path, tokenizer: Tokenizer, **files: dict) -> Path:
    """A model directory with this tokenizer; keyword arguments are JSON files."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": None}
    for name, content in {"tokenizer_config": settings, **files}.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return directory


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o")]
    return load_tokenizer(write(tmp_path_factory.mktemp("bpe"), byte_level(*merges)))


@given(text=st.text())
def test_text_survives_its_own_ids(bpe, text):
    assert text_of(bpe, bpe.encode(text, add_special_tokens=False)) == text


def test_special_tokens_are_one_id_and_left_out_of_text(bpe):
    ids = bpe.encode("<|im_start|>hello <think>!<|im_end|>", add_special_tokens=False)
    vocab = bpe.get_vocab()
    assert (ids[0], ids[1], ids[-1]) == (vocab["<|im_start|>"], vocab["hello"], vocab["<|im_end|>"])
    assert text_of(bpe, ids) == "hello <think>!"


def test_spaces_stay_as_sampled(bpe):
    # The library's clean-up would turn this into "a, b don't."
    text = "a , b do n't ."
    assert text_of(bpe, bpe.encode(text, add_special_tokens=False)) == text


def test_case_122_an_unusual_split_has_the_text_but_not_the_ids(bpe):
    vocab = bpe.get_vocab()
    sampled = [vocab["he"], vocab["ll"], vocab["o"]]
    assert text_of(bpe, sampled) == "hello"
    assert bpe.encode("hello", add_special_tokens=False) == [vocab["hello"]] != sampled


def test_a_character_cut_short_becomes_the_replacement_character(bpe):
    assert text_of(bpe, bpe.encode("aé", add_special_tokens=False)[:-1]) == "a\ufffd"


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("tokenizer_class", ["PreTrainedTokenizerFast", "Qwen2Tokenizer", "Qwen2TokenizerFast"])
def test_tokenizer_json_is_followed_whatever_the_class_and_model_type(tmp_path, model_type, tokenizer_class):
    file = word_level({"<unk>": 0, "sum": 1, "1": 2, "2": 3, "+": 4})
    settings = {"tokenizer_class": tokenizer_class}
    directory = write(tmp_path, file, tokenizer_config=settings, config={"model_type": model_type})
    text = "sum 12 + 21 other"
    assert load_tokenizer(directory).encode(text, add_special_tokens=False) == file.encode(text).ids


def test_normalisation_of_the_file_is_kept(tmp_path):
    file = byte_level()
    file.normalizer = normalizers.NFC()
    tokenizer = load_tokenizer(write(tmp_path, file, config={"model_type": "qwen2"}))
    assert text_of(tokenizer, tokenizer.encode("e\u0301", add_special_tokens=False)) == "é"


def test_older_files_without_tokenizer_json_load(tmp_path):
    file = byte_level(("h", "e"))
    file.model.save(str(tmp_path))
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_tokenizer(tmp_path)
    assert text_of(tokenizer, tokenizer.encode("he said", add_special_tokens=False)) == "he said"
    assert tokenizer.get_vocab()["he"] in tokenizer.encode("he said", add_special_tokens=False)


def test_case_124_ten_ids_of_sixteen_rows(tmp_path):
    vocab = {"<unk>": 0, **{str(digit): digit + 1 for digit in range(6)}}
    file = word_level(vocab)
    file.add_special_tokens(list(SPECIAL))
    tokenizer = load_tokenizer(write(tmp_path, file, config={"model_type": "qwen3", "vocab_size": 16}))
    assert token_count(tokenizer) == 10
    assert tokenizer.convert_ids_to_tokens(9) == "<|im_end|>"
    assert tokenizer.convert_ids_to_tokens(10) is None


def test_case_124_gaps_between_ids_count(tmp_path):
    tokenizer = load_tokenizer(write(tmp_path, word_level({"<unk>": 0, "a": 1, "b": 11})))
    assert token_count(tokenizer) == 12


BASE, CHAT = 256, 258  # ids of <|endoftext|> and <|im_end|> without merges


@pytest.mark.parametrize(
    ("config", "generation", "eos", "expected"),
    [
        ({"eos_token_id": BASE}, None, "<|im_end|>", (BASE, CHAT)),  # a base model with a chat tokenizer
        ({"eos_token_id": BASE}, {"eos_token_id": BASE}, "<|endoftext|>", (BASE, CHAT)),  # base throughout
        ({"eos_token_id": CHAT}, {"eos_token_id": [CHAT, BASE]}, "<|im_end|>", (BASE, CHAT)),
        ({"eos_token_id": [7, 9]}, {"eos_token_id": 8}, None, (7, 8, 9, CHAT)),
        ({"eos_token_id": None}, {}, None, (CHAT,)),
        (None, None, "<|endoftext|>", (BASE, CHAT)),
    ],
)
def test_case_125_every_source_of_the_end_counts(tmp_path, config, generation, eos, expected):
    files = {"config": config, "generation_config": generation, "tokenizer_config": {"eos_token": eos}}
    directory = write(tmp_path, byte_level(), **{name: file for name, file in files.items() if file is not None})
    assert stop_ids(directory, load_tokenizer(directory)) == expected


def test_no_source_names_an_end(tmp_path):
    directory = write(tmp_path, word_level({"<unk>": 0}))
    assert stop_ids(directory, load_tokenizer(directory)) == ()


@pytest.mark.parametrize("value", ["151645", True, -1, [3, None], 2.0])
def test_an_end_that_is_no_id_is_named(tmp_path, value):
    directory = write(tmp_path, byte_level(), generation_config={"eos_token_id": value})
    with pytest.raises(UserError, match=r"generation_config\.json: field eos_token_id"):
        stop_ids(directory, load_tokenizer(directory))


def test_bad_directories_are_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere: no such directory"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(UserError, match=r"tokenizer\.json: not a readable tokenizer") as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_code_in_the_directory_never_runs(tmp_path):
    settings = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", None]}}
    directory = write(tmp_path, byte_level(), tokenizer_config=settings)
    marker = directory / "ran"
    (directory / "mine.py").write_text(f"open({str(marker)!r}, 'w')\nclass Mine: pass\n")
    assert text_of(load_tokenizer(directory), [0])
    (directory / "tokenizer.json").rename(directory / "vocab.json")
    with pytest.raises(UserError, match="not a readable tokenizer"):
        load_tokenizer(directory)
    assert not marker.exists()


@pytest.fixture(scope="module")
def qwen(shared_dir, tmp_path_factory):
    """The published Qwen3 tokenizer, and its directory."""
    source, directory = shared_dir / "data" / "qwen_tokenizer", tmp_path_factory.mktemp("qwen")
    with gzip.open(source / "tokenizer.json.gz") as packed, open(directory / "tokenizer.json", "wb") as file:
        shutil.copyfileobj(packed, file)
    shutil.copy(source / "tokenizer_config.json", directory)
    (directory / "config.json").write_text(json.dumps({"model_type": "qwen3", "eos_token_id": 151643}))
    return load_tokenizer(directory), directory


def test_qwen_ids_and_text_agree_with_the_reference(qwen, shared_dir):
    tokenizer, _ = qwen
    file = shared_dir / "data" / "oracle" / "qwen3_tokenizer_dev.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 145
    for row in rows:
        assert tokenizer.encode(row["text"], add_special_tokens=False) == row["ids"], row["id"]
        assert tokenizer.decode(row["ids"], clean_up_tokenization_spaces=False) == row["decoded"], row["id"]


def test_qwen_counts_and_stop_set(qwen):
    tokenizer, directory = qwen
    assert token_count(tokenizer) == 151_669
    assert stop_ids(directory, tokenizer) == (151_643, 151_645)
