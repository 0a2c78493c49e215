"""Reads the raw tensor files of the judge's workers into numpy. The header is checked: the file comes from a process we do not trust."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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


def read_leaves(path: Path) -> list[Leaf]:
    """All leaves of one file. Raises Malformed (also when the file is not there or too short)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Malformed(f"{path.name}: {error.strerror}") from error
    try:
        (length,) = struct.unpack_from("<Q", data)
        if length > min(MAX_HEADER_BYTES, len(data) - 8):
            raise Malformed(f"{path.name}: header of {length} bytes")
        entries = json.loads(data[8 : 8 + length])["leaves"]
        return [_leaf(entry, memoryview(data)[8 + length :]) for entry in entries]
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise Malformed(f"{path.name}: {type(error).__name__}: {error}") from error


def _leaf(entry: dict[str, Any], body: memoryview) -> Leaf:
    stored = str(entry["stored"])
    if stored not in NUMPY_DTYPES:
        raise Malformed(f"dtype {stored}")
    offset, nbytes = int(entry["offset"]), int(entry["nbytes"])
    if offset < 0 or nbytes < 0 or offset + nbytes > len(body):
        raise Malformed("bytes outside the file")
    values: npt.NDArray[Any] = np.frombuffer(body[offset : offset + nbytes], dtype=NUMPY_DTYPES[stored])
    if stored == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    shape = tuple(int(size) for size in entry["shape"])
    sampled = bool(entry["sampled"])
    if not sampled and values.size != int(np.prod(shape, dtype=np.int64)):
        raise Malformed(f"{values.size} values for shape {shape}")
    return Leaf(path=str(entry["path"]), dtype=str(entry["dtype"]), shape=shape, device=str(entry["device"]), kind=str(entry["type"]),
                sampled=sampled, values=values)
