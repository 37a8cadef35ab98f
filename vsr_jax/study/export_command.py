"""`vsr export`: a model directory, a run folder or a training checkpoint, written as a Hugging Face directory."""

import dataclasses
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding

from vsr_jax.data.tokenizer import load_tokenizer, stop_ids
from vsr_jax.errors import UserError
from vsr_jax.model.checkpoint_io import check_tensors, load_params, save_model
from vsr_jax.model.config import ModelConfig, parse_config, read_config
from vsr_jax.model.params import Params, lookup, param_specs
from vsr_jax.model.resolve import resolve_model
from vsr_jax.model.weight_files import stored_tensors, write_json
from vsr_jax.training.checkpoint import fingerprints

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
)
_TOKEN_FIELDS = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True)
class Source:
    """What is exported.

    Attributes:
      model: directory with the config and the tokenizer, and with the weights when there is no checkpoint.
      checkpoint: folder of Orbax steps whose parameters replace those of `model`, and the step.
      max_position: context that the run used in place of the config's.
    """

    model: Path
    checkpoint: tuple[Path, int] | None
    max_position: int | None = None


def export(
    source: str | os.PathLike[str],
    out: Path,
    *,
    model: str | None = None,
    step: int | None = None,
    dtype: str = "stored",
    revision: str | None = None,
    max_shard_bytes: int = 5_000_000_000,
) -> str:
    """Writes a Hugging Face directory: weights, config, tokenizer files and generation config.

    The weights keep every row of the vocabulary. `out` appears when it is complete.

    Args:
      source: model directory, hub id, run folder that holds `model` or `checkpoints`, or a folder of checkpoints.
      out: directory to write; absent or empty.
      model: directory or hub id with the config and tokenizer of a checkpoint, where its run folder does not say.
      step: step of a checkpoint; the newest one when None.
      dtype: `stored` keeps the weights' own, `float32` or `bfloat16`.
      revision: hub revision.
      max_shard_bytes: weights beyond it are split into shards with an index.

    Returns:
      What was written, for the screen.

    Raises:
      UserError: nothing to export at `source`, a checkpoint that does not fit the model, or `out` holds files.
    """
    out = out.absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists and is not an empty directory; choose another OUT_DIR")
    found = find_source(source, model=model, step=step, revision=revision)
    config, params = _load(found)
    if dtype == "stored":
        kinds = {str(x.dtype) for x in jax.tree.leaves(params)}
        dtype = kinds.pop() if len(kinds) == 1 else "float32"
    # Beside the target, so that the final rename stays on one disk; a leftover is from an export that was killed.
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    notes = _copy_texts(found.model, partial)
    raw = read_config(found.model / "config.json")
    extra = {name: raw[name] for name in _TOKEN_FIELDS if raw.get(name) is not None}
    save_model(config, params, partial, dtype=dtype, max_shard_bytes=max_shard_bytes, extra=extra)
    stored = stored_tensors(partial)
    check_tensors(config, stored, partial)
    os.replace(partial, out)
    files = sorted(out.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    origin = str(found.model) if found.checkpoint is None else f"{found.checkpoint[0]}, step {found.checkpoint[1]}"
    head = "tied to the embedding" if config.tie_word_embeddings else "stored"
    return "\n".join(
        [
            f"from: {origin}",
            f"weights: {len(stored)} tensors as {dtype}, {size / 1e9:.3f} GB in {len(files)} file(s)",
            f"output head: {head}",
            *notes,
            f"model: {out}",
        ]
    )


def find_source(
    source: str | os.PathLike[str], *, model: str | None = None, step: int | None = None, revision: str | None = None
) -> Source:
    """Tells what `source` is. Arguments and errors as in `export`."""
    folder = Path(source).expanduser()
    if not folder.exists() or (folder / "config.json").exists():
        _refuse(source, "a model", model=model, step=step)
        return Source(resolve_model(source, revision).directory, None)
    run, checkpoints = folder, folder / "checkpoints"
    if folder.name.isdecimal() and (folder / "_CHECKPOINT_METADATA").exists():
        if step not in (None, int(folder.name)):
            raise UserError(f"{folder}: is the checkpoint of step {folder.name}; drop --step {step}")
        run, checkpoints, step = folder.parent.parent, folder.parent, int(folder.name)
    elif checkpoint_steps(folder):
        run, checkpoints = folder.parent, folder
    elif (folder / "model" / "config.json").exists() and model is None and step is None:
        return Source(folder / "model", None)
    steps = checkpoint_steps(checkpoints)
    if not steps:
        raise UserError(f"{folder}: holds neither a model nor checkpoints{_elsewhere(folder)}")
    if step is not None and step not in steps:
        raise UserError(f"{checkpoints}: has no step {step}; it holds {', '.join(map(str, steps))}")
    settings = read_config(run / "settings.json") if (run / "settings.json").exists() else {}
    directory = _model_of_run(run, settings, model, revision)
    return Source(directory, (checkpoints, steps[-1] if step is None else step), settings.get("max_position"))


def _refuse(source: Any, kind: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise UserError(f"{source}: is {kind}, not a checkpoint; drop --{name} {value}")


def checkpoint_steps(folder: Path) -> list[int]:
    """Complete Orbax steps of a folder, ascending; one being written has another name."""
    if not folder.is_dir():
        return []
    return sorted(
        int(child.name)
        for child in folder.iterdir()
        if child.name.isdecimal() and (child / "_CHECKPOINT_METADATA").exists()
    )


def _elsewhere(folder: Path) -> str:
    """Folders below that could be meant."""
    below = sorted({path.parent.parent for path in folder.glob("**/model/config.json")} - {folder})
    names = ", ".join(str(path) for path in below)
    return f"; below it there are {names}: export one of them" if names else ""


def _model_of_run(run: Path, settings: Mapping[str, Any], model: str | None, revision: str | None) -> Path:
    """Where the config and tokenizer of a run's checkpoints lie: as named, in its folder, or in its settings."""
    if model is not None:
        return resolve_model(model, revision, weights=False).directory
    if (run / "model" / "config.json").exists():
        return run / "model"
    if isinstance(settings.get("model"), str):
        return resolve_model(settings["model"], settings.get("revision"), weights=False).directory
    raise UserError(f"{run}: does not say which model its checkpoints belong to; name it with --model")


def _load(source: Source) -> tuple[ModelConfig, Params]:
    """Config and parameters in host memory; exporting needs no accelerator."""
    file = source.model / "config.json"
    config = parse_config(read_config(file), where=str(file), max_position=source.max_position)
    try:
        host = SingleDeviceSharding(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX was started without its CPU backend
        host = SingleDeviceSharding(jax.local_devices()[0])
    if source.checkpoint is None:
        return load_params(config, source.model, sharding_of=lambda spec: host)
    directory, step = source.checkpoint
    params = _restore_params(directory, step, host)
    config = dataclasses.replace(config, tie_word_embeddings="lm_head" not in params)
    for spec in param_specs(config):
        try:
            shape = np.shape(lookup(params, spec))
        except (KeyError, TypeError):
            raise UserError(f"{directory / str(step)}: parameter {'.'.join(spec.path)} is missing") from None
        if shape != spec.shape:
            name = ".".join(spec.path)
            raise UserError(
                f"{directory / str(step)}: parameter {name} has shape {shape}, {file} asks for {spec.shape}"
            )
    return config, params


def _restore_params(directory: Path, step: int, host: SingleDeviceSharding) -> Params:
    """The parameters of a training state, and nothing else of it, whatever devices it was saved from."""
    where = directory / str(step)
    handlers = {"state": ocp.PyTreeCheckpointHandler(), "extra": ocp.JsonCheckpointHandler()}
    try:
        with ocp.CheckpointManager(directory.absolute(), item_handlers=handlers) as manager:
            metadata: Any = manager.item_metadata(step)
            tree = metadata["state"].tree["params"]
            like = {"params": jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=host), tree)}
            state = ocp.args.PyTreeRestore(
                item=like, restore_args=ocp.checkpoint_utils.construct_restore_args(like), partial_restore=True
            )
            found = manager.restore(step, args=ocp.args.Composite(state=state, extra=ocp.args.JsonRestore()))
            params, marks = found["state"]["params"], found["extra"]["marks"]
    except KeyError as error:
        raise UserError(f"{where}: is not the checkpoint of a training state ({error.args[0]})") from None
    except Exception as error:  # what a damaged file raises depends on where the damage is
        raise UserError(
            f"{where}: cannot be read ({str(error).partition(chr(10))[0]}); choose another --step"
        ) from None
    # The fingerprints are of the whole state, whose parameters come first.
    own = [int(mark) for mark in jax.device_get(fingerprints(params))]
    if own != marks[: len(own)]:
        raise UserError(f"{where}: its parameters are not those that were saved; choose another --step")
    return params


def _copy_texts(source: Path, target: Path) -> list[str]:
    """Copies tokenizer and generation config, and says what the source lacks.

    A model without a generation config gets one that names its whole stop set, so that other engines end where it did.
    """
    names = [name for name in (*_TOKENIZER_FILES, "generation_config.json") if (source / name).exists()]
    for name in names:
        shutil.copyfile(source / name, target / name)
    if not set(names) & {"tokenizer.json", "vocab.json", "tokenizer.model"}:
        return [f"note: {source} has no tokenizer; copy one into the directory before generating"]
    if "generation_config.json" not in names and (stops := stop_ids(source, load_tokenizer(source))):
        write_json(target / "generation_config.json", {"eos_token_id": list(stops)})
        return [f"note: {source} has no generation config; the one written stops at {', '.join(map(str, stops))}"]
    return []
