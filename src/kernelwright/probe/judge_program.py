"""One program (reference or candidate) under the judge: a call on given inputs, its outputs as leaves, and timed blocks."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import os
import pickle
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import torch

from . import tree
from .importing import seed_all
from .judge_inputs import same_layout
from .judge_tensors import BUFFER, Leaf, clone_like, need_dense
from .loaders import Inputs, LoadedWorkload
from .training import find_loss

# Taken before any candidate is imported: a patched timer or synchronize changes torch's names, not these.
_perf_counter_ns = time.perf_counter_ns
_synchronize = torch.cuda.synchronize
_Event = torch.cuda.Event
_elapsed_time = torch.cuda.Event.elapsed_time
_random = random.SystemRandom()

POISON = 0xFF
"""Each byte: NaN in every floating dtype, -1 in signed integers."""
RING_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}
"""Input sets for the timed calls of one sample use at most this much memory."""
MAX_RENEWED_BYTES = 2**30
MAX_MOVED_BYTES = 8 * 2**20
"""Smaller inputs lie elsewhere in every block on a CPU."""
FILLINGS, SMALLEST_FILLING, LARGEST_FILLING = 24, 2**8, 2**20
"""Blocks of memory that shift the others, and their sizes in bytes."""
LARGE_FILLING = 16 * 2**20
"""One more is of any size up to this: it shifts what MKL keeps between calls for the thread that calls (4.6 MB). What it keeps for others
lies in arenas of theirs, and moves little."""
TOUCHED_BYTES = 32 * 2**20
"""Of memory are written beforehand: else calls at new places meet pages for the first time, more of them in the process that is younger."""
PARTS = 4
"""In so many blocks: malloc keeps none of the whole size (STEADY_MEMORY)."""
FREES_KEPT = ("mkl_serv_free_buffers", "mkl_free_buffers")
"""The function that frees what MKL keeps: in torch's own library, and where torch loads MKL from another (not tried)."""
VECTOR_FUNCTIONS = (torch.acos, torch.asin, torch.atan, torch.ceil, torch.cos, torch.cosh, torch.erf, torch.erfc, torch.erfinv, torch.exp,
                    torch.expm1, torch.floor, torch.lgamma, torch.log, torch.log10, torch.log1p, torch.log2, torch.round, torch.sin,
                    torch.sinh, torch.sqrt, torch.tan, torch.tanh, torch.trunc)
"""Those that torch may leave to MKL on a CPU (ATen/cpu/vml.h)."""
MAX_POISON_BYTES = {"cuda": 256 * 2**20, "cpu": 8 * 2**20}
"""Larger outputs are not poisoned: filling them takes 0.1 ms on an H200 at its bandwidth, and some ms on a CPU, before every sample."""


def unwrap(model: Any) -> Any:
    """The module under torch.compile's wrapper."""
    return getattr(model, "_orig_mod", model)


def ready_vector_functions(device: str) -> None:
    """Each of MKL's vector functions once, on one thread. With torch 2.13 on two cores the first `tanh` of a large tensor, which two
    threads begin together, was off by up to 9e-5 in some elements in 7 of 1,300 fresh processes, and in none of 1,000 that had called a
    small one before."""
    if device == "cpu":
        for dtype in (torch.float32, torch.float64):
            half = torch.full((16,), 0.5, dtype=dtype)
            for function in VECTOR_FUNCTIONS:
                function(half)


def find_frees_kept() -> Callable[[], object]:
    """The function that frees the memory which MKL keeps between calls and no call is using; one that does nothing where torch has no
    MKL. It keeps the GIL: a process forked by another thread meanwhile would find MKL's locks taken."""
    try:
        library = ctypes.PyDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    except OSError:
        return _nothing
    for name in FREES_KEPT:
        if (function := getattr(library, name, None)) is not None:
            function.restype, function.argtypes = None, ()
            return cast("Callable[[], object]", function)
    return _nothing


def _nothing() -> None:
    """Nothing is kept."""


_free_kept = find_frees_kept()


def check_dense(workload: LoadedWorkload) -> None:
    """Raises ProbeFailure where an input, a parameter or a buffer is no dense tensor: such a one is neither compared nor copied."""
    need_dense("input", tree.leaves((workload.args, workload.kwargs)))
    model = unwrap(workload.model)
    if isinstance(model, torch.nn.Module):
        need_dense("parameter", model.named_parameters())
        need_dense("buffer", model.named_buffers())


class Drew(NamedTuple):
    """Whose random numbers a call drew."""

    torch: bool
    outside: bool
    """Python's or NumPy's global ones."""


class Program:
    """A callable with the workload's calling convention."""

    def __init__(self, workload: LoadedWorkload, fn: Callable[..., Any], *, is_new: bool = False) -> None:
        """is_new: a model of its own in the place of the workload's (ModelNew), which it can't reach."""
        self.workload = workload
        self.fn = fn
        self.is_new = is_new
        self.owner = _owner(fn, workload)

    def state(self) -> list[Leaf]:
        """Of inference: the buffers that the reference was seen to change, as they are now: the callable's own of that name, else the
        model's. None of a new model, whose state is its own."""
        if self.workload.training or self.is_new or not self.workload.changed_buffers:
            return []
        modules = [place for place in (unwrap(self.workload.model), self.fn) if isinstance(place, torch.nn.Module)]
        held = {plain_name(name): buffer for module in modules for name, buffer in module.named_buffers()}
        return [(f"{BUFFER}{name}", held[name].detach().clone()) for name in self.workload.changed_buffers if name in held]

    def call(self, inputs: Inputs, seed: int) -> tuple[list[Leaf], Drew]:
        """One call under `seed`: its output leaves, and whose random numbers it drew."""
        seed_all(seed)
        before, outside = _random_state(self.workload.device), _random_state_outside()
        output = self.workload.step(self.fn, *inputs)
        self.synchronize()
        drew = any(not torch.equal(one, two) for one, two in zip(before, _random_state(self.workload.device), strict=True))
        found = _random_state_outside()
        drew_outside = any(found[name] != state for name, state in outside.items())  # NumPy's, where it was imported before
        return [*self.leaves(output), *self.input_gradients(inputs), *self.state()], Drew(drew, drew_outside)

    def input_gradients(self, inputs: Inputs) -> list[Leaf]:
        """After a training step: the gradients of inputs that require one."""
        if not self.workload.training:
            return []
        return [(f"grad input {path}", leaf.grad) for path, leaf in tree.leaves(inputs) if leaf.is_leaf and leaf.grad is not None]

    def leaves(self, output: Any, *, buffers: bool = True) -> list[Leaf]:
        """What is compared: the output's tensors and numbers; of a training step the loss, the gradients and the buffers it left."""
        if not self.workload.training:
            return [*tree.leaves(output), *_numbers(output, "")]
        loss = find_loss(output)
        found: list[Leaf] = [] if loss is None else [("loss", loss.detach())]
        if isinstance(self.owner, torch.nn.Module):
            grads = [(plain_name(name), parameter.grad) for name, parameter in self.owner.named_parameters()]
            found += [(f"grad.{name}", grad) for name, grad in grads if grad is not None]
        if buffers:
            found += [(f"{BUFFER}{name}", tensor) for name, tensor in self.buffers().items()]
        return found

    def buffers(self) -> dict[str, torch.Tensor]:
        """Buffers whose values count after a training step, by name: the callable's own where it has the model's, else the model's."""
        model = unwrap(self.workload.model)
        if not isinstance(model, torch.nn.Module):
            return {}
        wanted = {plain_name(name): tensor for name, tensor in model.named_buffers()}
        own = {plain_name(name): tensor for name, tensor in self.owner.named_buffers()} if isinstance(self.owner, torch.nn.Module) else {}
        return {name: own[name] for name in wanted} if own.keys() >= wanted.keys() else wanted

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Before a checked training step: the buffers as they were loaded, so that every call starts from the same ones."""
        if not self.workload.training:
            return
        with torch.no_grad():
            for name, tensor in self.buffers().items():
                if name in state and state[name].shape == tensor.shape:
                    tensor.copy_(state[name])

    def synchronize(self) -> None:
        """Wait for the whole device, side streams included."""
        if self.workload.device == "cuda":
            _synchronize()


class Timer:
    """Timed calls of one program on a ring of input sets that are refilled, outside the timed part, before every sample.

    Other values and a new tensor version each time: a result remembered by address or version is not the right one. (Other values at each
    place where the ring's length is no multiple of the pool's.) What the last outputs occupied is filled with POISON meanwhile: a buffer
    that is returned without having been written shows it.
    """

    def __init__(self, program: Program, pool: list[Inputs], calls: int, *, is_alone: bool = True) -> None:
        """is_alone: what it is compared with runs in another process, which has other memory."""
        self.program = program
        self.pool = pool
        self._is_alone = is_alone
        self.ring: list[Inputs] = []
        self.callers: list[Callable[[], Any]] = []
        self._fill(calls)
        self._calls = calls
        """Of the present sample."""
        self.last_output: Any = None
        self._output_bytes: list[int] | None = None
        self._fillings: list[torch.Tensor] = []
        self._is_led_in = False
        self._is_moved = program.workload.device == "cpu" and _bytes_of(self.ring) <= MAX_MOVED_BYTES
        if is_alone and program.workload.device == "cpu":
            touched = [torch.empty(TOUCHED_BYTES // PARTS, dtype=torch.uint8, device="cpu").fill_(POISON) for _ in range(PARTS)]
            touched.clear()

    @property
    def ring_size(self) -> int:
        """Calls a sample."""
        return len(self.callers)

    def warm(self, seconds: float, min_calls: int) -> float:
        """Call until both are reached, on refilled inputs as when timed; returns the shortest seconds a call."""
        start, calls, best = time.perf_counter(), 0, float("inf")
        while calls < min_calls or time.perf_counter() - start < seconds:
            self._refill(calls)
            self.program.synchronize()
            begin = _perf_counter_ns()
            self._run_ring()
            self.program.synchronize()
            best = min(best, (_perf_counter_ns() - begin) / 1e9 / len(self.callers))
            calls += len(self.callers)
        return best

    def lead_in(self, first: int = 0) -> None:
        """One untimed pass at the places that the next block has: the other process had the caches. first: that block's; no place has
        the values of its first sample yet, so that nothing can be remembered for it."""
        self._move()
        self._refill(first + 1)
        self._run_ring()
        self.program.synchronize()
        self._is_led_in = True

    def renew(self) -> None:
        """Put the input sets into newly allocated tensors, at other addresses than the present ones (not where they are very large)."""
        before = self.ring
        if self._is_moved or _bytes_of(before) > MAX_RENEWED_BYTES:  # what is moved lies elsewhere in the next block anyway
            return
        try:
            self._fill(len(before))
            self.program.synchronize()
        except torch.cuda.OutOfMemoryError:
            self._use(before)

    def single(self, values: Inputs, others: list[Inputs]) -> float | None:
        """Nanoseconds by the host until the device is idle of one call on these values, after untimed ones on others at the same place.
        None where the values' layout is another than the pool's."""
        self._calls, host_ns = 1, None
        for given in (*others, values):
            self._poison()
            if not same_layout(self.pool[0], given):
                return None
            self._put(0, given)
            self.program.synchronize()
            with no_collection():
                _, host_ns = self._sample()
        return host_ns

    def refill_for(self, first: int) -> None:
        """Other values for the next sample, as `block` numbers them, and poisoned memory; all of it done."""
        self._refill(first)
        self.program.synchronize()

    def block(self, samples: int, first: int, last_calls: int) -> tuple[list[float], list[float]]:
        """(event ns, host ns) of each sample, a sample being one call on each input set; event ns is empty on the CPU.

        Input set i of sample s holds pool entry (first + s * ring + i) modulo the pool's size. The last sample ends after last_calls
        calls: the judge compares that call's output.
        """
        events: list[float] = []
        hosts: list[float] = []
        if not self._is_led_in:
            self._move()
        self._is_led_in = False
        with no_collection():
            for sample in range(samples):
                self._refill(first + sample * len(self.ring))
                self._calls = last_calls if sample == samples - 1 else len(self.ring)
                event_ns, host_ns = self._sample()
                hosts.append(host_ns)
                if event_ns is not None:
                    events.append(event_ns)
        return events, hosts

    def sample(self) -> tuple[float | None, float]:
        """(event ns or None on the CPU, host ns until the device is idle) of one pass over the ring."""
        self._calls = len(self.ring)
        return self._sample()

    def _sample(self) -> tuple[float | None, float]:
        if self.program.workload.device != "cuda":
            begin = _perf_counter_ns()
            self._run_ring(self._calls)
            return None, float(_perf_counter_ns() - begin)
        start, end = _Event(enable_timing=True), _Event(enable_timing=True)
        _synchronize()
        begin = _perf_counter_ns()
        start.record()
        self._run_ring(self._calls)
        end.record()
        _synchronize()
        host = float(_perf_counter_ns() - begin)
        return _elapsed_time(start, end) * 1e6, host

    def _run_ring(self, calls: int | None = None) -> None:
        output = None
        for call in self.callers if calls is None else self.callers[:calls]:
            output = call()
        self.last_output = output

    def _fill(self, calls: int) -> None:
        self._use([tree.map_tensors(clone_like, self.pool[index % len(self.pool)]) for index in range(calls)])

    def _use(self, ring: list[Inputs]) -> None:
        self.ring = ring
        self.callers = [self.program.workload.caller(self.program.fn, *inputs) for inputs in self.ring]

    def _refill(self, first: int) -> None:
        self._poison()
        for index in range(len(self.ring)):
            self._put(index, self.pool[(first + index) % len(self.pool)])

    def _put(self, index: int, source: Inputs) -> None:
        """These values into one input set. Where shapes or plain values follow the seed: into new tensors, as large as they must be."""
        if not refill(self.ring[index], source):
            self.ring[index] = tree.map_tensors(clone_like, source)
            self.callers[index] = self.program.workload.caller(self.program.fn, *self.ring[index])

    def _move(self) -> None:
        """CPU: other places for what the next calls allocate, and for their inputs.

        Where buffers lie against each other (modulo a page, say) follows from what a process allocated before, and decides some per cent
        of a call's time: the same program in two processes differed by up to 5% for life, and by 1% on average between reference and
        candidate, whose histories differ. Where what MKL keeps lies made a product slower by a fifth. Drawn anew for each block, it
        averages out (Curtsinger & Berger 2013, STABILIZER: statistically sound performance evaluation). Programs in one process share what
        MKL keeps: there it stays.
        """
        if self.program.workload.device != "cpu":
            return
        self._fillings.clear()
        if self._is_alone:
            _free_kept()
        drawn = [int(SMALLEST_FILLING * (LARGEST_FILLING / SMALLEST_FILLING) ** _random.random()) for _ in range(FILLINGS)]
        self._fillings = [torch.empty(size, dtype=torch.uint8, device="cpu") for size in drawn][::2]  # and holes for the other half
        if self._is_alone:
            self._fillings.append(torch.empty(_random.randrange(LARGE_FILLING), dtype=torch.uint8, device="cpu"))
        if self._is_moved:
            self._fill(len(self.ring))

    def _poison(self) -> None:
        """Free the last output and fill what the allocator gives next for as many bytes: two of each, since two are alive in turn."""
        device = self.program.workload.device
        if self._output_bytes is None:
            if self.last_output is None:
                return
            sizes = [tensor.numel() * tensor.element_size() for _, tensor in tree.leaves(self.last_output)]
            few = sum(sizes) <= MAX_POISON_BYTES[device] and not self.program.workload.training
            self._output_bytes = [size for size in sizes if size] if few else []
        self.last_output = None
        try:
            kept = [torch.empty(size, dtype=torch.uint8, device=device).fill_(POISON) for size in self._output_bytes for _ in range(2)]
            kept.clear()
        except torch.cuda.OutOfMemoryError:
            self._output_bytes = []


def _bytes_of(ring: list[Inputs]) -> int:
    return sum(leaf.numel() * leaf.element_size() for inputs in ring for _, leaf in tree.leaves(inputs))


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Python's garbage collector does not run inside it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def refill(target: Inputs, source: Inputs) -> bool:
    """Copy all tensor values in place; False (nothing done) when a shape, a dtype or a plain value differs."""
    if not same_layout(target, source):
        return False
    with torch.no_grad():
        for (_, to), (_, value) in zip(tree.leaves(target), tree.leaves(source), strict=True):
            to.copy_(value)
    return True


def _owner(fn: Callable[..., Any], workload: LoadedWorkload) -> Any:
    """Whose gradients count: the callable when it has the model's parameters by name, else the model."""
    model = unwrap(workload.model)
    if not isinstance(fn, torch.nn.Module):
        return model
    if not isinstance(model, torch.nn.Module):
        return fn
    names, wanted = ({plain_name(name) for name, _ in module.named_parameters()} for module in (fn, model))
    return fn if names >= wanted else model


def plain_name(name: str) -> str:
    """Of a parameter or buffer, without torch.compile's part."""
    return name.replace("_orig_mod.", "")


def _random_state(device: str) -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state()] if device == "cuda" else states


def _random_state_outside() -> dict[str, Any]:
    """Of Python's and NumPy's global generators, comparable."""
    numpy = getattr(sys.modules.get("numpy"), "random", None)
    states = {"random": random.getstate()}
    return states if numpy is None else {**states, "numpy": pickle.dumps(numpy.get_state(legacy=False))}


def _numbers(output: Any, path: str) -> Iterator[Leaf]:
    """Python numbers in the output, as float64 scalars."""
    if isinstance(output, (bool, int, float)):
        yield path, torch.tensor(float(output), dtype=torch.float64)
        return
    children: list[tuple[str, Any]] = []
    if isinstance(output, Mapping):
        children = [(str(key), value) for key, value in output.items()]
    elif isinstance(output, (tuple, list)):
        children = [(str(index), value) for index, value in enumerate(output)]
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        children = [(item.name, getattr(output, item.name, None)) for item in dataclasses.fields(output)]
    for name, child in children:
        yield from _numbers(child, f"{path}.{name}" if path else name)
