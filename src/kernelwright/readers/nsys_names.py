"""Names in an Nsight Systems recording -> the names that Kineto gives to the same things."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

_API_SUFFIX = re.compile(r"(?:_ptsz|_ptds)?(?:_v\d{4,})?$")
_QUALIFIED = re.compile(r"^\w+::")
_MACHINERY = re.compile(r"^(?:Torch-Compiled Region|TorchDynamo Cache Lookup|Pregraph bytecode|AOTDispatcher |CompiledFunction)|"
                        r" \(dynamo_timed\)$")
_MOST_DIGITS = 18
_MAX_SHAPES_CHARACTERS = 64 << 10
EVALUATE = "autograd::engine::evaluate_function: "
"""Begins the name of the range around each backward node."""


class RangeName(NamedTuple):
    """The parts of one NVTX text. emit_nvtx writes "aten::addmm, seq = 7, op_id = 9, sizes = [[2, 3], ...], input_op_ids = [...]"."""

    name: bytes
    sequence: int = -1
    op_id: int = -1
    sizes: bytes = b""


def range_name(text: bytes) -> RangeName:
    """The parts of an NVTX text; what is not written by emit_nvtx is all name."""
    head, mark, rest = text.partition(b", op_id = ")
    op_id = _number(rest.partition(b",")[0]) if mark else -1
    if mark and op_id < 0:
        return RangeName(text)
    if mark:
        rest = rest.partition(b", sizes = ")[2]
    else:  # Up to torch 1.8 operators have no number.
        head, _, rest = text.partition(b", sizes = ")
    name, _, sequence = head.partition(b", seq = ")
    return RangeName(name, _number(sequence), op_id, rest.partition(b", input_op_ids = ")[0])


Columns = tuple[Sequence[bytes], Sequence[int], Sequence[int], Sequence[bytes]]
"""The parts of many texts: names, sequence numbers, op_ids, sizes."""


def range_names(texts: Sequence[Any]) -> Columns:
    """range_name of each; what is no text has an empty name."""
    try:
        return _emitted(texts)
    except (ValueError, AttributeError):
        parsed = [range_name(text if isinstance(text, bytes) else b"") for text in texts]
        return [one.name for one in parsed], [one.sequence for one in parsed], [one.op_id for one in parsed], [one.sizes for one in parsed]


def _emitted(texts: Sequence[bytes]) -> Columns:
    """The same for texts that emit_nvtx wrote, each with its number, in less time; raises ValueError or AttributeError for others."""
    heads, marks, rests = zip(*[text.partition(b", op_id = ") for text in texts], strict=True)
    numbers, _, rests = zip(*[rest.partition(b", sizes = ") for rest in rests], strict=True)
    names, has_sequence, sequences = zip(*[head.partition(b", seq = ") for head in heads], strict=True)
    present = [digits for digits, mark in zip(sequences, has_sequence, strict=True) if mark]
    if b"" in marks or b"" in present or not b"".join([*numbers, *present]).isdigit() or max(map(len, (*numbers, *present))) > _MOST_DIGITS:
        raise ValueError("a text without numbers")
    sizes = [rest.partition(b", input_op_ids = ")[0] for rest in rests]
    return names, [int(digits) if digits else -1 for digits in sequences], [int(digits) for digits in numbers], sizes


def _number(digits: bytes) -> int:
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else -1


def is_operator(name: str, *, emitted: bool) -> bool:
    """Whether a range without sequence number and shapes is an operator by its name; emitted: emit_nvtx gave it a number.

    record_function's ranges have a number too, but neither of the others; so have operators without arguments.
    """
    return name.startswith("aten::") or (emitted and (_QUALIFIED.match(name) is not None or _MACHINERY.search(name) is not None))


def shapes(text: bytes) -> list[Any]:
    """"[[2, 3], [], [4]]" -> lists. [] for what is no such text: nsys may have cut it."""
    if not text or len(text) > _MAX_SHAPES_CHARACTERS:
        return []
    try:
        return _SHAPES.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


_SHAPES = msgspec.json.Decoder(list[list[int | list[int]]])


def api_name(name: str) -> str:
    """"cudaLaunchKernel_v7000", "cudaMemcpyAsync_ptsz_v7000" -> as Kineto names them. Driver calls ("cuMemcpyDtoH_v2") keep theirs."""
    return _API_SUFFIX.sub("", name)


_COPY_KINDS = ("UNKNOWN", "HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA", "DTOD", "HTOH", "PTOP", "UVM_HTOD", "UVM_DTOH",
               "UVM_DTOD")
_MEMORY_KINDS = ("PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC", "UNKNOWN")
COPY_KINDS = dict(enumerate(_COPY_KINDS))
"""Where the file has no ENUM_CUDA_MEMCPY_OPER."""
MEMORY_KINDS = dict(enumerate(_MEMORY_KINDS))
"""Where the file has no ENUM_CUDA_MEM_KIND."""
_UNIFIED = "UVM_"


def copy_name(kind: str, source: str, target: str) -> str:
    """("HTOD", "PAGEABLE", "DEVICE") -> "Memcpy HtoD (Pageable -> Device)"; migrations of unified memory have a name of their own."""
    unified = kind.startswith(_UNIFIED)
    kind = kind.removeprefix(_UNIFIED)
    short = f"{kind[0]}to{kind[3]}" if len(kind) == 4 and kind[1:3] == "TO" else "Unknown"
    return f"Unified memory migration {short}" if unified else f"Memcpy {short} ({_memory(source)} -> {_memory(target)})"


def fill_name(memory: str) -> str:
    """"DEVICE" -> "Memset (Device)"."""
    return f"Memset ({_memory(memory)})"


def _memory(kind: str) -> str:
    return kind.replace("_", " ").title() if kind in _MEMORY_KINDS else "Unknown"
