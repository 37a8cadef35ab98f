"""Checks with the reference implementation that an exported directory is the model it came from.

Needs torch and transformers (see `make_goldens.py`):

    python tests/goldens/check_export.py ORIGINAL EXPORTED
    python tests/goldens/check_export.py EXPORTED            # where there is no original: it loads and generates

Both directories are loaded with `AutoModelForCausalLM` and `AutoTokenizer`, in their own dtype.
"""

import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = "Compute 12 + 30. [1] 4 (1) + 3 . Write about rain , 请用中文回答。"


def load(directory: str) -> tuple[Any, Any, dict[str, Any]]:
    """Model and tokenizer, once the loader has neither missed nor left over any tensor."""
    model, report = AutoModelForCausalLM.from_pretrained(directory, dtype="auto", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[kind]:
            raise SystemExit(f"{directory}: {kind} {sorted(map(str, report[kind]))[:3]}")
    return model.eval(), AutoTokenizer.from_pretrained(directory), model.state_dict()


@torch.no_grad()
def main() -> None:
    """Compares tensors bit for bit, token ids, logits and a greedy continuation."""
    loaded = [load(directory) for directory in sys.argv[1:]]
    found = []
    for model, tokenizer, _ in loaded:
        ids = tokenizer(TEXT, return_tensors="pt", add_special_tokens=False).input_ids
        continued = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=16)
        found.append((ids, model(ids).logits, continued, model.generation_config.eos_token_id))
    _, _, state = loaded[-1]
    dtypes = sorted({str(x.dtype) for x in state.values()})
    print(
        f"{sys.argv[-1]}: {len(state)} tensors, {', '.join(dtypes)}, {sum(x.numel() for x in state.values()):,} numbers"
    )
    print(f"ends at {found[-1][3]}; continues {loaded[-1][1].decode(found[-1][2][0, found[-1][0].shape[1] :])!r}")
    if len(loaded) == 2:
        original = loaded[0][2]
        same = original.keys() == state.keys() and all(torch.equal(original[name], state[name]) for name in state)
        alike = [torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(*found, strict=True)]
        print(f"tensors equal: {same}; token ids, logits, continuation, stop ids equal: {alike}")
        if not (same and all(alike)):
            raise SystemExit("the exported directory is not the model it came from")


if __name__ == "__main__":
    main()
