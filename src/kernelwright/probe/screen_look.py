"""Original and candidate of the optimiser's quick screen, side by side in this process: outputs compared roughly, times taken in turns."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from . import facts, judge_candidate, judge_program, loaders, tree
from .judge_program import Program, Timer, unwrap
from .judge_tensors import Leaf, clone_like
from .rewrites.float32_flags import float32_flags
from .screen_statistics import median_interval

Message = dict[str, Any]
SAMPLE_S = {"cuda": 400e-6, "cpu": 0.01}
"""A sample repeats the call until it is about this long, or as often as RING_BYTES and MAX_CALLS allow. On a GPU as the judge's: what the
host takes before a call's first launch counts once a sample (H200, a convolution network with the compiler's CUDA graphs: 2.6x by samples
of 4 ms on one core, which was a slow one, 1.6x by the judge)."""
RINGS = (1, 2, 4, 8, 16)
"""Calls a sample on a GPU, the same for both programs."""
FIRST_S = 0.5
"""No more numbers of calls a sample are measured for the original alone after so long."""
CORE_S = 0.06
"""Another core for the launching thread after so long: a process stays for seconds on a core that others share, and what is launched
is as slow as its core (H200, 16 cores: the same program 360, then 700 us a call)."""
LEAST_CORES = 4
"""Timing does not stop early before so many were drawn."""
RING_BYTES = {"cuda": judge_program.RING_BYTES["cuda"], "cpu": 1 << 26}
"""On a GPU the judge's: with fewer calls a sample what a call waits for its first launch counts more. (H200, 256 MiB of inputs, compiled:
284 us a call with one a sample here, 168 us by the judge with three.)"""
MAX_CALLS = 32
WARM_S = 0.1
MIN_PAIRS = 3
PRECISE = 0.005
"""Timing stops early when the interval's half-width is below this share."""
FASTER_ALONE = 0.95
"""The original was timed at the start. Later in a shared process it may have become faster through what candidates left there (cuDNN's
benchmark cache is one): below this share of its first time, the first time counts."""
LIMITS = {"equal": 1e-2, "tf32": 1e-2, "bf16": 1e-1}
"""Relative difference of an output above which a candidate is wrong: ten times what rounding of inputs does, where that is more."""
NO_LIMIT = 0.5
"""Where the limit would be above this, outputs say nothing, and are left to the judge."""
ROUNDOFF = {"equal": 2.0**-22, "tf32": 2.0**-11, "bf16": 2.0**-8}
ROUNDOFF_FACTOR = 10.0
COARSER = ("equal", "tf32", "bf16")
OF_DTYPE = {"float16": "tf32", "bfloat16": "bf16"}
"""An original in such a dtype, or under autocast to it, rounds as much by itself: what is compiled of it keeps more digits on the way
(H200, eight layers in bfloat16, compiled: 1.6e-2 away, and right by the judge)."""
LEFT_BYTES = 512 * 2**20
"""A process in which candidates left more is not used further; libraries' workspaces (32 MiB a stream on an H200) stay below."""


class First(NamedTuple):
    """ns a call of the original before any candidate was here."""

    least_ns: float
    """On the fastest core: what is below it shows that the original itself became faster."""
    usual_ns: float
    """On the median one."""


class Look:
    """Original and candidates in this process."""

    def __init__(self, workload: loaders.LoadedWorkload, more: Sequence[loaders.Inputs] = ()) -> None:
        self.workload = workload
        self.inputs = (workload.args, workload.kwargs)
        self.more = more
        """Inputs of other shapes: compared too, and timed in turns with the own ones."""
        self.original = Program(workload, workload.model)
        self.start_state = {name: tensor.detach().clone() for name, tensor in self.original.buffers().items()}
        self.expected: list[Leaf] = []
        self.comparable = False
        self.own_precision = "equal"
        """What the original's own rounding is like."""
        self.rounding: dict[str, float] = {}
        self.first_ns: dict[int, First] = {}
        """Calls a sample -> the original's time before any candidate was here."""
        self.pair: tuple[Program, Program] | None = None
        self.altered = False
        """The candidate changed the original (a training step's weights laid out anew) or its process (what malloc keeps), so that the
        original's time from before counts."""
        self.shared = False
        """Whether other candidates were here before."""

    def prepare(self, message: Message) -> Message:
        """Build the candidate (and the one it is timed against), call it, compare."""
        self.drop({})
        if not self.expected:
            self._look_at_original(message["seed"])
        # Before anything of the candidate runs: it may change the original.
        precision = max(message["precision"], self.own_precision, key=COARSER.index)
        limit = max(LIMITS[precision], ROUNDOFF_FACTOR * self._rounding(precision, message["seed"]))
        state, start = self._state(), time.perf_counter()
        reference = self.original
        if message["against"]:
            reference = self._built(message["against"], message["seed"])
            self._call(reference, message["seed"])
        elif message["lasts"] and self.workload.device != "cuda":
            self.first_ns = self._before()
        program = self._built(message["candidate"], message["seed"])
        got = self._call(program, message["seed"])
        compares = self.comparable and limit <= NO_LIMIT
        error, wrong = difference(self.expected, got) if compares else (None, "")
        for inputs in self.more:  # what compiles for other shapes does so now
            if reference is not self.original:
                self._outputs(reference, message["seed"], inputs)
            theirs = self._outputs(program, message["seed"], inputs)[0]
            if compares and not wrong:
                other, wrong = difference(self._outputs(self.original, message["seed"], inputs)[0], theirs)
                error = max((one for one in (error, other) if one is not None), default=None)
        self.original.synchronize()
        build_s = time.perf_counter() - start
        self.pair = (reference, program)
        if not wrong and error is not None and not error <= limit:
            wrong = f"its outputs differ from the original's by {error:.1e}, more than {limit:.0e}"
        self.shared = True
        self.altered = message["lasts"] or self._state() != state
        return {"build_s": build_s, "error": error, "limit": limit if error is not None else None, "wrong": wrong, "spoiled": self.altered}

    def time(self, message: Message) -> Message:
        """Times in turns (ABBA) until the seconds are over, the ratio is known well, or it is below `hopeless`."""
        assert self.pair is not None
        one, two = self._timers(self.pair)
        first = self._first(one.ring_size) if self.pair[0] is self.original else None
        hopeless = message["hopeless"]
        ratios: list[float] = []
        firsts: list[float] = []
        seconds: list[float] = []
        stopped = False
        with drawn_cores(on_gpu=self.workload.device == "cuda") as draw:
            end = time.perf_counter() + message["seconds"]
            while not ratios or time.perf_counter() < end:
                enough = draw() >= LEAST_CORES
                before, after, again, last = (_sample(timer) for timer in (one, two, two, one))
                if self.altered and first is not None:
                    before = last = first.usual_ns
                firsts += [before, last]
                seconds += [after, again]
                ratios.append((before + last) / (after + again))
                stopped = hopeless is not None and max(ratios) < hopeless * (1.0 if len(ratios) >= MIN_PAIRS else 0.5)
                interval = median_interval(ratios)
                if stopped or (enough and interval is not None and interval[1] - interval[0] < 2 * PRECISE * interval[0]):
                    break
        reference, candidate = statistics.median(firsts), statistics.median(seconds)
        speedup, interval = statistics.median(ratios), median_interval(ratios)
        if first is not None and reference < FASTER_ALONE * first.least_ns:
            factor = first.least_ns / reference
            reference, speedup = first.least_ns, speedup * factor
            interval = None if interval is None else (interval[0] * factor, interval[1] * factor)
        return {"speedup": speedup, "interval": interval, "pairs": len(ratios), "reference_ns": reference, "candidate_ns": candidate,
                "calls": one.ring_size, "hopeless": stopped}

    def compile(self, message: Message) -> Message:
        """Build and call, so that what compilers made is in their caches."""
        program = self._built(message["candidate"], message["seed"])
        self._call(program, message["seed"])
        self.original.synchronize()
        return {}

    def drop(self, _message: Message) -> Message:
        """Forget the candidate. Returns whether it left something behind that the next would meet."""
        used = self.pair is not None
        self.pair = None
        if not used and not self.shared:
            return {"spoiled": False}
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
        gc.collect()
        if self.workload.device != "cuda":
            return {"spoiled": False}
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return {"spoiled": torch.cuda.memory_allocated() > self.own_bytes + LEFT_BYTES or self._state() != self.clean}

    def _look_at_original(self, seed: int) -> None:
        """Its outputs, whether they can be compared (the same twice, no random numbers drawn), and its time before any candidate."""
        with _autocasts() as narrow:
            self.expected, drew = self._outputs(self.original, seed)
        weights = list(self.workload.model.parameters()) if isinstance(self.workload.model, torch.nn.Module) else []
        narrow |= {facts.main_dtype(tensors) for tensors in (
            [*weights, *(tensor for _, tensor in tree.leaves(self.inputs))], [leaf for _, leaf in self.expected])}
        self.own_precision = max(("equal", *(OF_DTYPE[dtype] for dtype in narrow if dtype in OF_DTYPE)), key=COARSER.index)
        again, _ = self._outputs(self.original, seed)
        error, wrong = difference(self.expected, again)
        self.comparable = not drew and not wrong and error is not None and error <= LIMITS["equal"]
        if self.workload.device == "cuda":
            self.first_ns = self._alone()
        elif self.workload.training:
            self.first_ns = self._before()
        if self.workload.device == "cuda":
            del again
            gc.collect()
            self.own_bytes, self.clean = torch.cuda.memory_allocated(), self._state()

    def _before(self) -> dict[int, First]:
        """The original by itself, without a GPU."""
        timer = self._timers([self.original])[0]
        taken_ns = statistics.median(_sample(timer) for _ in range(2 * MIN_PAIRS))
        return {1: First(taken_ns, taken_ns)}

    def _rounding(self, precision: str, seed: int) -> float:
        """How far the original's outputs move when its inputs are rounded to this precision."""
        if not self.comparable or precision in self.rounding:
            return self.rounding.get(precision, 0.0)
        generator = torch.Generator(device=self.workload.device).manual_seed(seed)

        def rounded(tensor: torch.Tensor) -> torch.Tensor:
            copy = clone_like(tensor)
            if tensor.is_floating_point():
                noise = torch.empty(tensor.shape, device=tensor.device).uniform_(-1.0, 1.0, generator=generator)
                with torch.no_grad():
                    copy.add_((copy * noise * ROUNDOFF[precision]).to(copy.dtype))
            return copy

        self.original.restore(self.start_state)
        moved, _ = self.original.call(tree.map_tensors(rounded, self.inputs), seed)
        error, _ = difference(self.expected, moved)
        self.rounding[precision] = error or 0.0
        return self.rounding[precision]

    def _built(self, path: str, seed: int) -> Program:
        return Program(self.workload, judge_candidate.build(path, self.workload, seed).call)

    def _call(self, program: Program, seed: int) -> list[Leaf]:
        return self._outputs(program, seed)[0]

    def _outputs(self, program: Program, seed: int, inputs: loaders.Inputs | None = None) -> tuple[list[Leaf], bool]:
        """A call's output leaves, copied (a captured graph writes the next ones over them), and whether it drew torch's random
        numbers."""
        program.restore(self.start_state)
        leaves, drew = program.call(tree.map_tensors(clone_like, inputs or self.inputs), seed)
        return [(path, leaf.detach().clone()) for path, leaf in leaves], drew.torch

    def _alone(self) -> dict[int, First]:
        """The original by itself, for each number of calls a sample that may come, as far as FIRST_S go: what is left out then are more
        calls than a sample of such long ones has."""
        found: dict[int, First] = {}
        self._filled(self.original, self._in_turns(1)).warm(WARM_S, 2)
        start = time.perf_counter()
        for ring in sorted({self._in_turns(ring) for ring in RINGS if ring == 1 or ring * self._input_bytes() <= RING_BYTES["cuda"]}):
            if found and time.perf_counter() - start > FIRST_S:
                break
            timer = self._filled(self.original, ring)
            cores: list[float] = []
            with drawn_cores(on_gpu=True, seconds=0.0) as draw:
                while len(cores) < LEAST_CORES and not (cores and time.perf_counter() - start > FIRST_S):
                    draw()
                    timer.warm(0.0, 1)
                    cores.append(statistics.median(_sample(timer) for _ in range(MIN_PAIRS)))
            found[ring] = First(min(cores), statistics.median(cores))
        return found

    def _first(self, ring: int) -> First | None:
        """Of the original before any candidate, in samples of so many calls, or of the next smaller number that was measured."""
        measured = [known for known in self.first_ns if known <= ring]
        return self.first_ns[max(measured)] if measured else None

    def _timers(self, programs: Sequence[Program]) -> list[Timer]:
        """Warm, with as many calls a sample as make it long enough; on a GPU as many for the one as for the other."""
        made = [self._filled(program, self._in_turns(1)) for program in programs]
        call_s = [timer.warm(WARM_S, 2) for timer in made]
        for place, program in enumerate(programs):
            calls = self._in_turns(self._calls(min(call_s) if self.workload.device == "cuda" else call_s[place]))
            if calls > made[place].ring_size:
                made[place] = self._filled(program, calls)
                made[place].warm(0.0, calls)
        return made

    def _calls(self, call_s: float) -> int:
        """Of a sample, where one takes so long."""
        device = self.workload.device
        wanted, most = SAMPLE_S[device] / max(call_s, 1e-9), RING_BYTES[device] // self._input_bytes()
        if device == "cuda":
            return max((ring for ring in RINGS if ring <= most and ring < 2 * wanted), default=1)
        return max(1, min(int(wanted), MAX_CALLS, most))

    def _filled(self, program: Program, calls: int) -> Timer:
        program.restore(self.start_state)
        return Timer(program, [self.inputs, *self.more], calls, is_alone=False)

    def _in_turns(self, calls: int) -> int:
        """So many, or the next number with which each sample has all shapes alike."""
        sets = 1 + len(self.more)
        return -(-calls // sets) * sets

    def _input_bytes(self) -> int:
        return sum(leaf.numel() * leaf.element_size() for _, leaf in tree.leaves(self.inputs) if isinstance(leaf, torch.Tensor)) or 1

    def _state(self) -> list[Any]:
        """What a candidate could change for those after it: weights' places and layouts, modes, hooks and torch's switches."""
        model = unwrap(self.workload.model)
        own: list[Any] = []
        if isinstance(model, torch.nn.Module):
            own = [(name, tensor.data_ptr(), tensor.stride(), tensor.dtype, tensor.requires_grad)
                   for name, tensor in model.named_parameters()]
            own += [(name, tensor.data_ptr(), tensor.stride()) for name, tensor in model.named_buffers()]
            own += [(type(module), module.training, len(module._forward_hooks), len(module._forward_pre_hooks), "forward" in vars(module))
                    for module in model.modules()]
        cudnn = torch.backends.cudnn
        return [*own, float32_flags(), cudnn.benchmark, cudnn.deterministic, cudnn.enabled,
                torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads(), torch.is_autocast_enabled(),
                torch.are_deterministic_algorithms_enabled()]



@contextlib.contextmanager
def _autocasts() -> Iterator[set[str]]:
    """Short names of the dtypes of the autocast regions that are entered meanwhile."""
    found: set[str] = set()
    enter = torch.autocast.__enter__

    def entered(region: Any) -> Any:
        if getattr(region, "_enabled", False):
            found.add(facts.plain_dtype(region.fast_dtype))
        return enter(region)

    torch.autocast.__enter__ = entered
    try:
        yield found
    finally:
        torch.autocast.__enter__ = enter


def difference(expected: list[Leaf], got: list[Leaf]) -> tuple[float | None, str]:
    """(largest ||got - expected|| / ||expected|| over the floating leaves, None without any; what is plainly wrong, or "")."""
    if [path for path, _ in expected] != [path for path, _ in got]:
        return None, "its outputs have another structure than the original's"
    errors: list[float] = []
    for (path, one), (_, two) in zip(expected, got, strict=True):
        name = path or "itself"
        if one.shape != two.shape or one.dtype != two.dtype:
            return None, f"output {name} is {tuple(two.shape)} {two.dtype}, the original's {tuple(one.shape)} {one.dtype}"
        if not (one.is_floating_point() or one.is_complex()) or one.layout != torch.strided or not one.numel():
            continue
        a, b = (torch.view_as_real(leaf) if leaf.is_complex() else leaf for leaf in (one, two))
        finite = a.isfinite()
        if not bool(torch.equal(finite, b.isfinite())):
            return None, f"output {name} has other infinities or NaNs than the original's"
        a, b = (torch.where(finite, leaf.double(), 0.0) for leaf in (a, b))
        size, off = float(a.norm()), float((a - b).norm())
        errors.append(off / size if size > 0 else (0.0 if off == 0 else float("inf")))
    return (max(errors) if errors else None), ""


@contextlib.contextmanager
def drawn_cores(*, on_gpu: bool, seconds: float = CORE_S) -> Iterator[Callable[[], int]]:
    """Yields what binds this thread to another random core once `seconds` are over since the last draw, and says how many were drawn;
    undone at the end, for threads that were born meanwhile too. Without a GPU, or where the system cannot bind, nothing is bound, and
    what it says is always enough."""
    allowed = sorted(os.sched_getaffinity(0)) if on_gpu and hasattr(os, "sched_setaffinity") else []
    drawn, source, since = 0, random.SystemRandom(), -math.inf  # a workload may seed or watch the usual generator
    before = _threads()

    def draw() -> int:
        nonlocal drawn, since
        if len(allowed) < 2:
            return LEAST_CORES
        if time.perf_counter() - since >= seconds:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {source.choice(allowed)})
            drawn, since = drawn + 1, time.perf_counter()
        return drawn

    try:
        yield draw
    finally:
        for thread in (0, *(_threads() - before)) if drawn else ():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, allowed)


def _threads() -> set[int]:
    """Of this process; none where the system does not list them."""
    with contextlib.suppress(OSError):
        return {int(name) for name in os.listdir("/proc/self/task")}
    return set()


def _sample(timer: Timer) -> float:
    """Nanoseconds of one call, by events on a GPU."""
    events, hosts = timer.block(1, 0, timer.ring_size)
    return float((events or hosts)[0] / timer.ring_size)
