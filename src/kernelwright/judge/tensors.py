"""Reads the raw tensor files of the judge's workers into numpy. The header is checked: the file comes from a process we do not trust."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from .untrusted import open_regular

WRITTEN, BUFFER, INPUT_GRADIENT = "written input ", "buffer ", "grad input "
STATE_PREFIXES = (WRITTEN, BUFFER, INPUT_GRADIENT)
"""Leaves beside the outputs: inputs that the reference writes to, buffers that a call leaves changed, inputs' gradients (the names are the
probe's)."""
MAX_HEADER_BYTES = 64 * 2**20
NUMPY_DTYPES = {
    "float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2", "complex128": "<c16", "complex64": "<c8",
    "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "<i1", "uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "<u1",
    "bool": "<u1",
}
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "complex128": 2.0**-52, "complex64": 2.0**-23,
       "float8_e4m3fn": 2.0**-3, "float8_e4m3fnuz": 2.0**-3, "float8_e5m2": 2.0**-2, "float8_e5m2fnuz": 2.0**-2}
"""Distance from 1 to the next number (IEEE 754; OCP 8-bit floating point for the last four)."""


class Malformed(Exception):
    """A tensor file that is not what the protocol says."""


@dataclass(frozen=True)
class Leaf:
    """One tensor of a nest, as a worker exported it."""

    path: str
    dtype: str
    """torch's short name of the tensor's dtype."""
    shape: tuple[int, ...]
    device: str
    """"cuda" or "cpu"."""
    kind: str
    """Class name: "Tensor", "Parameter", or a subclass."""
    sampled: bool
    """values holds a random sample, not the whole tensor."""
    values: npt.NDArray[Any]
    """Shape (n,), in logical (row-major) order; bfloat16 widened to float32."""

    @property
    def floating(self) -> bool:
        """Compared by error norms; else element by element."""
        return self.dtype in EPS

    @property
    def eps(self) -> float:
        """Of the tensor's dtype; 0 for integers."""
        return EPS.get(self.dtype, 0.0)


Size = Annotated[int, Field(ge=0, lt=2**62)]
Word = Annotated[str, Field(max_length=1000)]


class _Entry(BaseModel):
    """One leaf in a file's header (the layout is the probe's judge_tensors)."""

    model_config = ConfigDict(strict=True, extra="ignore")
    path: Word
    dtype: Word
    stored: Word
    device: Word
    type: Word
    shape: Annotated[list[Size], Field(max_length=64)]
    offset: Size
    nbytes: Size
    sampled: bool


class _Header(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    leaves: list[_Entry]


def read_leaves(path: Path) -> list[Leaf]:
    """All leaves of one file. Raises Malformed (also when the file is not there, too short, a link or no regular file)."""
    try:
        with open_regular(path) as file:
            data = file.read()
        (length,) = struct.unpack_from("<Q", data)
        if length > min(MAX_HEADER_BYTES, len(data) - 8):
            raise Malformed(f"{path.name}: header of {length} bytes")
        header = _Header.model_validate_json(data[8 : 8 + length])
        return [_leaf(entry, memoryview(data)[8 + length :]) for entry in header.leaves]
    except OSError as error:
        raise Malformed(f"{path.name}: {error.strerror or error}") from error
    except (struct.error, ValueError, RecursionError, MemoryError) as error:
        words = " ".join(str(error).split())[:200]
        raise Malformed(f"{path.name}: {type(error).__name__}: {words}") from error


def _leaf(entry: _Entry, body: memoryview) -> Leaf:
    if entry.stored not in NUMPY_DTYPES:
        raise Malformed(f"dtype {entry.stored}")
    if entry.offset + entry.nbytes > len(body):
        raise Malformed("bytes outside the file")
    values: npt.NDArray[Any] = np.frombuffer(body[entry.offset : entry.offset + entry.nbytes], dtype=NUMPY_DTYPES[entry.stored])
    if entry.stored == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    elements = prod(entry.shape)
    if values.size != elements and not (entry.sampled and 0 < values.size <= elements):
        raise Malformed(f"{values.size} values for shape {entry.shape}")
    return Leaf(path=entry.path, dtype=entry.dtype, shape=tuple(entry.shape), device=entry.device, kind=entry.type, sampled=entry.sampled,
                values=values)
