"""Cloud TPU chips and slices: published figures, and devices to compile for on a machine that has none."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vsr_jax.errors import UserError


@dataclass(frozen=True)
class Chip:
    """Published figures of one chip.

    Attributes:
      flops: bf16 operations a second.
      hbm_gib: device memory; the compiler keeps a part of it to itself.
      hbm_bytes: bytes a second to device memory.
      ici_bytes: bytes a second that a chip sends over all its links to neighbours, one direction.
      dimensions: of the torus.
      host: shape of the chips that one host drives, as the compiler names it.
    """

    name: str
    flops: float
    hbm_gib: float
    hbm_bytes: float
    ici_bytes: float
    dimensions: int
    host: tuple[int, ...]


# fmt: off
CHIPS: Mapping[str, Chip] = MappingProxyType({
    chip.name: chip for chip in (
        #            bf16 FLOP/s  GiB  HBM B/s    ICI B/s
        Chip("v4",  275e12,      32, 1200e9,    300e9, 3, (2, 2, 1)),
        Chip("v5e", 197e12,      16,  819e9,    200e9, 2, (2, 2)),
        Chip("v5p", 459e12,      95, 2765e9,    600e9, 3, (2, 2, 1)),
        Chip("v6e", 918e12,      32, 1600e9,    400e9, 2, (2, 2)),
    )
})
# fmt: on
"""From the pages https://cloud.google.com/tpu/docs/v4, /v5e, /v5p and /v6e: peak compute, HBM capacity and bandwidth,
and inter-chip interconnect, there in Gbit/s (2400, 1600, 4800, 3200)."""


def parse_topology(text: str) -> tuple[Chip, tuple[int, ...]]:
    """Reads `v5e:4x4` or `v5p:2x2x4` into the chip and the shape of the slice.

    Raises:
      UserError: an unknown chip, or a shape that its torus cannot have.
    """
    name, _, shape = text.partition(":")
    chip = CHIPS.get(name)
    if chip is None:
        raise UserError(f"topology {text!r}: unknown chip {name!r}; known are {', '.join(CHIPS)}, as in v5e:4x4")
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape) or shape.count("x") != chip.dimensions - 1:
        example = "x".join("4" * chip.dimensions)
        raise UserError(f"topology {text!r}: {name} slices have {chip.dimensions} dimensions, as in {name}:{example}")
    return chip, tuple(int(n) for n in shape.split("x"))


def slice_devices(text: str) -> Sequence[Any]:
    """Devices of a slice, to build a mesh and compile for. Needs the package libtpu and no TPU.

    Raises:
      UserError: libtpu is not installed, or the compiler knows no such slice.
    """
    chip, shape = parse_topology(text)
    quiet_compiler()
    from jax.experimental import topologies

    # A v4 or v5p chip has two cores that work as one; each device here is one chip.
    options = {"chip_config_name": "megacore"} if chip.name in ("v4", "v5p") else {}
    try:
        with hidden_noise():
            found = topologies.get_topology_desc(
                platform="tpu", topology_name=f"{chip.name}:{'x'.join(map(str, shape))}", **options
            )
    except Exception as error:
        if "libtpu" in str(error).lower() and "lockfile" not in str(error):
            raise UserError("planning needs the TPU compiler: pip install libtpu (Linux only)") from None
        raise UserError(f"topology {text!r}: {str(error).splitlines()[0]}") from None
    return found.devices


def quiet_compiler() -> None:
    """On a machine without a TPU tells libtpu not to look for one, which takes time and warns at length.

    Must run before libtpu is loaded; what is set already stays.
    """
    if any(Path("/dev").glob("accel*")) or any(Path("/dev/vfio").glob("[0-9]*")):
        return
    for name, value in {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
        "TPU_MIN_LOG_LEVEL": "3",
        "TPU_STDERR_LOG_LEVEL": "3",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Several planners may run at once: none of them opens a device.
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }.items():
        os.environ.setdefault(name, value)


@contextlib.contextmanager
def hidden_noise() -> Iterator[None]:
    """Drops what native code writes to standard error meanwhile; failures come as exceptions, which say it again."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
