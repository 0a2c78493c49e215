"""Tensors as raw files between the judge and its workers: a JSON header and the bytes. No pickle.

Layout: 8 bytes little-endian length of the header, the header (UTF-8 JSON, padded with spaces), then each leaf's bytes at its offset, a
multiple of ALIGNED_BYTES as the header's end is.
Header: {"leaves": [{"path", "dtype", "shape", "stride", "device", "type", "count", "offset", "nbytes", "stored", "sampled"}]}.
`stored` is the dtype of the bytes: the tensor's own, or float32 for the 8-bit floats that few readers know.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from .failures import workload_failed

Leaf = tuple[str, torch.Tensor]
WRITTEN, BUFFER = "written input ", "buffer "
"""Before the path of an input that the reference writes to, and of a buffer that it changes, where they stand among the outputs."""
PLAIN = {torch.Tensor: "Tensor", torch.nn.Parameter: "Parameter"}
_BASE = torch._C.TensorBase
_detach, _reshape, _to, _float, _contiguous = _BASE.detach, _BASE.reshape, _BASE.to, _BASE.float, _BASE.contiguous
_resolve_conj, _resolve_neg, _index_select = _BASE.resolve_conj, _BASE.resolve_neg, _BASE.index_select
_narrow, _copy, _empty = _BASE.narrow, _BASE.copy_, torch.empty
_randint, _Generator = torch.randint, torch.Generator
"""As they were when this file was loaded: methods that are replaced later are not called when an output is read."""
_NO_HOOKS = [guard for guard in (getattr(torch._C, name, None) for name in ("DisableTorchFunction", "_DisableTorchDispatch")) if guard]

ALIGNED_BYTES = 64
STAGED_BYTES = 32 << 20
"""What is larger and lies on a GPU goes to its file through host memory of this size: to copy 1.1 GB into new host memory took 0.8 s, for
its pages (an H200)."""
POISON_BYTES = {"cuda": 2 << 30, "cpu": 1 << 26}
POISON_BLOCKS = 2
POISON_MAX_BLOCKS = 256
DIRTY_BYTES = 2 << 30
M_PERTURB = -6
"""glibc's malloc.h. With byte b, malloc fills what it gives with b ^ 0xFF, and free what it takes with b (mallopt(3))."""


def need_dense(what: str, leaves: Iterable[Leaf]) -> None:
    """what: "input", say. Raises ProbeFailure where one is sparse, nested or quantized."""
    for name, tensor in leaves:
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            kind = tensor.dtype if tensor.is_quantized else "nested" if tensor.is_nested else tensor.layout
            raise workload_failed("not_dense", f"{f'{what} {name}'.rstrip()} is {kind}, and only dense tensors can be compared",
                                  fix="take and return dense tensors, and make the others from them inside forward")


def dtype_name(dtype: torch.dtype) -> str:
    """torch.float32 -> "float32"."""
    return str(dtype).replace("torch.", "")


def describe(path: str, tensor: torch.Tensor) -> dict[str, Any]:
    """What the judge checks of a leaf beside its values."""
    return {"path": path, "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape),
            "stride": list(tensor.stride()) if tensor.layout == torch.strided else [], "device": tensor.device.type,
            "type": kind(tensor), "count": tensor.numel()}


def kind(tensor: torch.Tensor) -> str:
    """"Tensor", "Parameter", or any other class's module and name: by identity, since a class can have any name."""
    known = PLAIN.get(type(tensor))
    return known if known is not None else f"{type(tensor).__module__}.{type(tensor).__qualname__}"[:100]


@contextlib.contextmanager
def as_it_lies() -> Iterator[None]:
    """Inside this no subclass and no mode of torch's functions or dispatch is asked: what has not been computed stays so."""
    with contextlib.ExitStack() as stack:
        for guard in _NO_HOOKS:
            stack.enter_context(guard())
        yield


def write_leaves(path: str, leaves: Sequence[Leaf], *, sample_seed: int = 0, limit_elements: int | None = None,
                 sample_elements: int = 0) -> None:
    """Write leaves to a new file at `path`.

    A leaf of more than limit_elements elements (None: none is) is reduced to sample_elements (or a 64th, if that is more) drawn with
    replacement under sample_seed and its path (of a written input, that of the input): two workers given the same seed choose the same
    places of tensors on one device. Raises ProbeFailure, OSError.
    """
    header: list[dict[str, Any]] = []
    chunks: list[torch.Tensor] = []
    offset = 0
    need_dense("output", leaves)
    for name, tensor in leaves:
        entry = describe(name, tensor)
        with as_it_lies():
            flat, sampled = _chosen(_detach(tensor), limit_elements, sample_elements,
                                    sample_seed ^ zlib.crc32(name.removeprefix(WRITTEN).encode()))
        nbytes = flat.numel() * flat.element_size()
        entry.update(offset=offset if nbytes else 0, nbytes=nbytes, stored=dtype_name(flat.dtype), sampled=sampled)
        header.append(entry)
        chunks.append(flat)
        offset = _aligned(offset + nbytes)
    text = json.dumps({"leaves": header}).encode()
    text = text.ljust(_aligned(8 + len(text)) - 8)
    temporary = f"{path}.part"
    with open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry, chunk in zip(header, chunks, strict=True):
            file.seek(8 + len(text) + entry["offset"])
            with as_it_lies():
                _write_bytes(file, chunk)
    os.replace(temporary, path)


def read_leaves(path: str, device: torch.device) -> list[Leaf]:
    """The leaves of a file that `write_leaves` wrote whole, on `device`, with their strides. Raises OSError, ValueError."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # a third of the time of reading it into memory first
        leaves = []
        for entry in header["leaves"]:
            if entry["sampled"]:
                raise ValueError(f"{path} holds a sample of {entry['path']}, not the whole")
            dtype, start = getattr(torch, entry["stored"]), 8 + length + entry["offset"]
            if start + entry["nbytes"] > len(mapped):
                raise ValueError(f"{path} ends within {entry['path']}")
            count = entry["nbytes"] // dtype.itemsize
            tensor = torch.frombuffer(mapped, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)
            tensor = tensor.reshape(entry["shape"]).to(getattr(torch, entry["dtype"]))
            leaves.append((entry["path"], _with_strides(tensor, entry["stride"], device)))
    return leaves


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNED_BYTES) * ALIGNED_BYTES


def clone_like(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and requires_grad, sharing nothing."""
    return tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_(tensor.requires_grad)


def checksum(tensor: torch.Tensor) -> str:
    """sha256 of the values in logical order."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    digest = hashlib.sha256(f"{flat.dtype}{tuple(tensor.shape)}".encode())
    _feed(flat, digest.update)
    return digest.hexdigest()


def layout(outputs: Sequence[Leaf], inputs: Sequence[Leaf]) -> list[dict[str, Any]]:
    """Of each dense output: strides (1 where the size is 1), whether its elements share memory, and which tensors' memory it lies in."""
    dense = [(path, tensor) for path, tensor in outputs if tensor.layout == torch.strided]
    return [{"path": path, "stride": [step if size > 1 else 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)],
             "overlaps_itself": overlaps_itself(tensor),
             "inputs": [name for name, given in inputs if _share_memory(tensor, given)],
             "outputs": [name for name, other in dense[:index] if _share_memory(tensor, other)]}
            for index, (path, tensor) in enumerate(dense)]


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Two elements at one address: a stride of 0, or strides shorter than what lies inside them."""
    reach = 0
    for step, size in sorted((step, size) for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1):
        if step <= reach:
            return bool(tensor.numel())
        reach += step * (size - 1)
    return False


def _share_memory(one: torch.Tensor, two: torch.Tensor) -> bool:
    if two.layout != torch.strided or one.device != two.device or not one.numel() or not two.numel():
        return False
    if one.untyped_storage().data_ptr() != two.untyped_storage().data_ptr():
        return False
    (start, end), (other_start, other_end) = _extent(one), _extent(two)
    return start < other_end and other_start < end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte, and the one after the last."""
    span = sum(step * (size - 1) for step, size in zip(tensor.stride(), tensor.shape, strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (span + 1) * tensor.element_size()


def poison(sizes: Sequence[int], device: str) -> None:
    """Leave garbage (all bits set: NaN, -1) in the allocator's free memory: blocks of these sizes in bytes and of the usual ones.

    What a call reads without having written it is then no leftover of an earlier, right answer. Never more than POISON_BYTES.
    """
    held, left = [], POISON_BYTES[device]
    for size in [*sizes, *sizes, *_free_sizes(device)]:
        if size > left:
            continue
        left -= size
        try:
            held.append(torch.full((size,), 255, dtype=torch.uint8, device=device))
        except RuntimeError:  # no room: then there is little free memory to read from
            break
    if device == "cuda":
        torch.cuda.synchronize()
    held.clear()


@contextlib.contextmanager
def dirty_malloc(device: str) -> Iterator[None]:
    """CPU: every block that malloc gives is filled with 0x7F (3.4e38 in a float32, 1.4e306 in a float64), whatever was in it before.

    poison() leaves NaN, and misses a block that comes from elsewhere in the heap, a page fresh from the system (all zero) say. This
    misses none that malloc gives, but for those below 1 KiB from a thread's cache. Only with glibc. It slows every allocation, and makes
    all of a block resident: see may_be_dirty.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if device == "cpu" and os.name == "posix" else None
    if mallopt is None:
        yield
        return
    mallopt(M_PERTURB, 0x7F ^ 0xFF)
    try:
        yield
    finally:
        mallopt(M_PERTURB, 0)


def address_space_peak() -> int:
    """Bytes of address space that this process had at most (Linux); 0 elsewhere."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("VmPeak:")), 0)
    except (OSError, ValueError, IndexError):
        return 0


def may_be_dirty(before: int, after: int) -> bool:
    """Whether a call that took the peak from `before` to `after` when memory was clean may be run with dirty memory: what it allocates and
    never touches (a cache for the longest sequence) would become resident, in the candidate alone."""
    return after - before <= DIRTY_BYTES


def _free_sizes(device: str) -> list[int]:
    """CUDA: the caching allocator's free blocks outside of graphs' pools. CPU: powers of two."""
    if device != "cuda":
        return [1 << power for power in range(10, 21) for _ in range(POISON_BLOCKS)]
    blocks = [int(block["size"]) for segment in torch.cuda.memory_snapshot() if tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0)
              for block in segment["blocks"] if block["state"] == "inactive"]
    return sorted(blocks, reverse=True)[:POISON_MAX_BLOCKS]


def _chosen(tensor: torch.Tensor, limit: int | None, elements: int, seed: int) -> tuple[torch.Tensor, bool]:
    sampled = limit is not None and tensor.numel() > limit
    flat = _reshape(tensor, -1) if not sampled else _sample(tensor, elements, seed)
    if flat.numel() * flat.element_size() <= STAGED_BYTES:
        flat = _to(flat, "cpu")
    if flat.is_floating_point() and flat.element_size() == 1:
        flat = _float(flat)
    return _contiguous(_resolve_neg(_resolve_conj(flat))), sampled


def _sample(tensor: torch.Tensor, elements: int, seed: int) -> torch.Tensor:
    # Drawn where the tensor lies: of 1 G elements 17 M are, for which a CPU's generator took 0.13 s, each time that it is exported.
    count = min(tensor.numel(), max(elements, tensor.numel() // 64))
    places = _randint(0, tensor.numel(), (count,), generator=_Generator(tensor.device).manual_seed(seed), device=tensor.device)
    sampled: torch.Tensor = _index_select(_reshape(tensor, -1), 0, places)
    return sampled


def _write_bytes(file: Any, flat: torch.Tensor) -> None:
    for part in [flat] if flat.device.type == "cpu" else _staged(flat):
        _feed(part, file.write)


def _staged(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """A flat tensor's elements in host memory, part by part, each in the place of the one before."""
    staged = _empty(STAGED_BYTES // flat.element_size(), dtype=flat.dtype, device="cpu")
    for start in range(0, flat.numel(), staged.numel()):
        part = _narrow(flat, 0, start, min(staged.numel(), flat.numel() - start))
        yield _copy(_narrow(staged, 0, 0, part.numel()), part)


def _feed(flat: torch.Tensor, sink: Callable[[Any], Any]) -> None:
    # ctypes instead of .numpy(): the workload's interpreter need not have numpy.
    nbytes = flat.numel() * flat.element_size()
    if nbytes:
        sink(memoryview((ctypes.c_char * nbytes).from_address(flat.data_ptr())).cast("B"))


def _with_strides(tensor: torch.Tensor, stride: Sequence[int], device: torch.device) -> torch.Tensor:
    dense = sorted((step, size) for step, size in zip(stride, tensor.shape, strict=True) if size > 1)
    expected = 1
    for step, size in dense:
        if step != expected:
            return tensor.to(device, copy=True)  # expanded or overlapping: contiguous instead
        expected *= size
    out = torch.empty_strided(tuple(tensor.shape), tuple(stride), dtype=tensor.dtype, device=device)
    return out.copy_(tensor)
