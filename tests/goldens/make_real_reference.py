"""Records what the reference implementation says about a real model on 16 prompts.

Needs torch and transformers (see `make_goldens.py`), the model as a Hugging Face directory and the benchmark files:

    python tests/goldens/make_real_reference.py MODEL_DIR NAME --data ../shared/data

writes `tests/goldens/real_<NAME>.npz`. The reference is the model class of the `transformers` library with eager
attention, one unpadded prompt at a time, logits in float32. Everything is right-padded with zeros:

    name               str[16]          what each prompt is
    tokens             int32[16, T]     prompt ids
    length             int32[16]        1 to 1,500
    logp               float32[16, T-1] log p of token t+1 after position t, over every row of the output head
    logp_known         float32[16, T-1] the same over the ids below `token_count` only
    top1               int32[16, T]     likeliest id at each position
    logp_bf16          float32[16, T-1] `logp` with weights and activations in bfloat16
    bf16_abs_deviation float32[4]       of |logp_bf16 - logp|: mean, median, 99th percentile, maximum
    token_count        int32            largest tokenizer id + 1; rows from there on are padding
    vocab_size         int32            rows of the output head
    greedy             int32[16, 64]    greedy float32 continuation, end-of-sequence ignored
    greedy_margin      float32[16, 64]  log-prob of the first choice minus the second: a near-tie excuses a difference

Prompts come from MATH, GSM8K (MIT), IFEval (Apache-2.0), IFBench (ODC-BY-1.0) and synthetic instructions.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

HERE = Path(__file__).resolve().parent
GREEDY_TOKENS = 64
LONG_TOKENS = 1500
# Positions whose logits exist at the same time: 128 x 151,936 float32 are 78 MB.
CHUNK = 128


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def prompts(data: Path, tokenizer: Any) -> Iterator[tuple[str, list[int]]]:
    """Yields (name, ids): math, instructions, Chinese, code, other scripts, one token and 1,500 tokens."""
    math = read_rows(data / "math" / "math500_test.jsonl")
    gsm8k = read_rows(data / "gsm8k" / "test.jsonl")
    ifeval = {row["key"]: row["prompt"] for row in read_rows(data / "ifeval" / "input_data.jsonl")}
    ifbench = read_rows(data / "ifbench" / "IFBench_test.jsonl")
    iftrain = read_rows(data / "iftrain" / "synthetic_iftrain_format.jsonl")
    texts = {row["id"]: row["text"] for row in read_rows(data / "oracle" / "qwen3_tokenizer_dev.jsonl")}

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    def chat(text: str) -> list[int]:
        turn = [{"role": "user", "content": text}]
        return ids(tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False))

    yield "math: short", ids(math[0]["problem"])
    yield "math: long", ids(math[4]["problem"])
    yield "math: with its solution", ids(math[5]["problem"] + "\n\n" + math[5]["solution"])
    yield "math: word problem", ids(gsm8k[0]["question"])
    yield "math: word problem in chat form", chat(gsm8k[7]["question"])
    yield "math: drawing code", ids(texts["59c3e67399a2"])
    yield "instruction: plain", ids(ifeval[1000])
    yield "instruction: in chat form", chat(ifeval[1019])
    yield "instruction: several constraints", ids(iftrain[0]["messages"][0]["content"])
    yield "instruction: code", ids(ifeval[1375])
    yield "code: function", ids(texts["b5526cc95d47"])
    yield "Chinese: a phrase in an English prompt", ids(ifeval[1675])
    yield "Chinese: a paragraph", ids(ifbench[240]["prompt"])
    yield "Bengali: a response", ids(texts["97b6e9986dbd"])
    yield "one token", ids("Okay")[:1]
    solutions = "\n\n".join(row["solution"] for row in math[:12])
    yield f"{LONG_TOKENS} tokens of solutions", ids(solutions)[:LONG_TOKENS]


def load(directory: Path, dtype: torch.dtype) -> Any:
    """The reference model with eager attention, in evaluation mode."""
    return AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager").eval()


@torch.no_grad()
def next_token_logp(model: Any, ids: list[int], known: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probs of the true next tokens [n-1] over all rows and over the first `known`, and the likeliest ids [n]."""
    hidden = model.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    target = torch.tensor([*ids[1:], 0])
    everything, tokenizer_only, top = [], [], []
    for start in range(0, len(ids), CHUNK):
        logits = model.lm_head(hidden[start : start + CHUNK]).float()
        chosen = logits.gather(1, target[start : start + CHUNK, None])[:, 0]
        everything.append(chosen - logits.logsumexp(-1))
        tokenizer_only.append(chosen - logits[:, :known].logsumexp(-1))
        top.append(logits.argmax(-1))
    n = len(ids) - 1
    return torch.cat(everything)[:n].numpy(), torch.cat(tokenizer_only)[:n].numpy(), torch.cat(top).numpy()


@torch.no_grad()
def greedy(model: Any, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """64 greedy tokens with the library's own `generate`, and the margin of each choice."""
    # An empty generation config, because the checkpoint's own may set an end or a repetition penalty.
    model.generation_config = GenerationConfig()
    out = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        generation_config=GenerationConfig(
            do_sample=False,
            max_new_tokens=GREEDY_TOKENS,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        ),
    )
    best = torch.stack([torch.log_softmax(step[0].float(), -1).topk(2).values for step in out.logits])
    return out.sequences[0, len(ids) :].numpy(), (best[:, 0] - best[:, 1]).numpy()


def padded(rows: list[np.ndarray], dtype: type) -> np.ndarray:
    """Right-pads with zeros to one rectangle."""
    table = np.zeros((len(rows), max(map(len, rows))), dtype)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table


def main() -> None:
    """Runs the reference in float32, then in bfloat16, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("name")
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data")
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    names, ids = zip(*prompts(args.data, tokenizer), strict=True)
    known = max(tokenizer.get_vocab().values()) + 1

    model = load(args.model, torch.float32)
    scored = [next_token_logp(model, row, known) for row in ids]
    continued = [greedy(model, row) for row in ids]
    greedy_ids = np.stack([tokens for tokens, _ in continued]).astype(np.int32)
    if greedy_ids.max() >= known:
        raise SystemExit("a greedy token lies in the padding of the vocabulary: the checkpoint is not what it seems")
    vocab_size = model.config.vocab_size

    del model
    model = load(args.model, torch.bfloat16)
    bf16 = [next_token_logp(model, row, known)[0] for row in ids]
    deviation = np.abs(np.concatenate(bf16) - np.concatenate([full for full, _, _ in scored]))
    summary = [deviation.mean(), np.median(deviation), np.quantile(deviation, 0.99), deviation.max()]

    path = HERE / f"real_{args.name}.npz"
    np.savez_compressed(
        path,
        name=np.array(names),
        tokens=padded([np.array(row) for row in ids], np.int32),
        length=np.array([len(row) for row in ids], np.int32),
        logp=padded([full for full, _, _ in scored], np.float32),
        logp_known=padded([part for _, part, _ in scored], np.float32),
        top1=padded([top for _, _, top in scored], np.int32),
        logp_bf16=padded(bf16, np.float32),
        bf16_abs_deviation=np.array(summary, np.float32),
        token_count=np.int32(known),
        vocab_size=np.int32(vocab_size),
        greedy=greedy_ids,
        greedy_margin=np.stack([margins for _, margins in continued]).astype(np.float32),
    )
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB, {sum(map(len, ids))} prompt tokens")
    print("bfloat16 deviation: mean {:.4f}, median {:.4f}, 99 % {:.4f}, max {:.4f}".format(*summary))


if __name__ == "__main__":
    main()
