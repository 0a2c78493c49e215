"""What the judge wants to know of a workload before any candidate: on which other inputs it can be run, what its output depends on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import tree
from .judge_distributions import KINDS, span, transformed
from .judge_program import Program
from .judge_reference import NotApplicable, copied, fresh_inputs, run_copy
from .judge_tensors import Leaf
from .loaders import Inputs, LoadedWorkload
from .rewrites.unwrap_compiled import uncompiled

SLOW_S = 4.0
"""A call above this is not repeated to see whether it is deterministic."""
ASSERTING = frozenset({"binary_cross_entropy", "binary_cross_entropy_backward", "multinomial", "bernoulli", "bernoulli_", "_assert_async"})
INDEXING = frozenset({"index", "index_put", "index_put_", "index_select", "index_add", "gather", "scatter", "scatter_", "scatter_add",
                      "embedding", "nll_loss_forward", "nll_loss2d_forward", "take", "_index_put_impl_"})
BINNING = frozenset({"bucketize", "searchsorted"})
"""On a GPU such an operator answers a value out of its range with an assertion that leaves the whole process without the device."""


class Survey:
    """Runs a copy of the reference: the reference's own state stays as it was loaded."""

    def __init__(self, workload: LoadedWorkload, state: dict[str, torch.Tensor], seed: int) -> None:
        self.workload = workload
        self.state = state
        self.seed = seed
        self.fn = copied(workload.model, None)
        self.inputs, _ = fresh_inputs(workload, seed, None)
        start = time.perf_counter()
        self.output, self.hazardous = self._first()
        self.call_s = time.perf_counter() - start

    def told(self, distributions_s: float, dependence_s: float) -> dict[str, Any]:
        """Everything, each part within its seconds (one distribution at least)."""
        deterministic, remembers = None, False
        if self.call_s <= SLOW_S:
            held = self._holds_as_loaded(torch.nn.Module.named_buffers)
            start = time.perf_counter()
            deterministic = _same(self.output, self._run(self.inputs))
            self.call_s = time.perf_counter() - start  # the first one loads libraries and kernels
            remembers = held and not deterministic and self._starts_alike() and all(
                self._holds_as_loaded(kind) for kind in (torch.nn.Module.named_buffers, torch.nn.Module.named_parameters))
        start = time.perf_counter()
        found: list[dict[str, Any]] = []
        for kind in KINDS if distributions_s > 0 else ():
            if found and time.perf_counter() - start + self.call_s > distributions_s:
                break
            found.append(self._distribution(kind))
        depends = [{"what": what, "name": name, "change": change} for what, name, change in self._dependence(dependence_s)]
        return {"deterministic": deterministic, "remembers": remembers, "call_s": self.call_s, "distributions": found,
                "dependence": depends, "spread": _spread(self.output)}

    def _holds_as_loaded(self, kind: Callable[[torch.nn.Module], Iterator[Leaf]]) -> bool:
        """The copy is a module whose buffers, or parameters, have not changed."""
        model = uncompiled(self.workload.model) or self.workload.model
        return (isinstance(model, torch.nn.Module) and isinstance(self.fn, torch.nn.Module)
                and _same(list(kind(model)), list(kind(self.fn))))

    def _starts_alike(self) -> bool:
        """Another copy gives the first one's first output."""
        try:
            fresh = copied(self.workload.model, None)
            Program(self.workload, fresh).restore(self.state)
            return _same(self.output, run_copy(self.workload, fresh, self.inputs, None, self.seed, []))
        except NotApplicable:  # no memory for it
            return False

    def _first(self) -> tuple[list[Leaf], bool]:
        """The output on the generator's own inputs, and whether out-of-range values could cost the device."""
        if self.workload.device != "cuda":
            return self._run(self.inputs), False
        watch = _Operators()
        try:
            with watch:
                output = self._run(self.inputs)
        except NotApplicable:  # something in it does not go together with being watched
            return self._run(self.inputs), True
        return output, watch.hazardous

    def _run(self, inputs: Inputs) -> list[Leaf]:
        Program(self.workload, self.fn).restore(self.state)
        return run_copy(self.workload, self.fn, inputs, None, self.seed, [])

    def _distribution(self, kind: str) -> dict[str, Any]:
        """How the reference fares on one kind: values set free first, kept in the generator's range where that gives more."""
        best: dict[str, Any] = {"kind": kind, "free": False, "finite": 0.0, "reason": ""}
        for free in (False,) if self.hazardous else (True, False):
            inputs, done = transformed(self.inputs, kind, self.seed, free)
            if not done:
                best["reason"] = best["reason"] or "no float input can be changed so"
                continue
            try:
                finite = _finite_share(self._run(inputs))
            except NotApplicable as reason:
                best["reason"] = best["reason"] or f"the reference itself fails: {str(reason)[:200]}"
                continue
            if finite > best["finite"]:
                best.update(free=free, finite=finite)
            if finite == 1.0 or not _narrowed(self.inputs):
                break
        if best["finite"] == 0.0:
            best["reason"] = best["reason"] or "the reference is finite nowhere"
        return best

    def _dependence(self, seconds: float) -> Iterator[tuple[str, str, float]]:
        """("input", path), ("weight", name) or ("all inputs", ""), with the largest relative change of any output leaf."""
        start = time.perf_counter()
        other, _ = fresh_inputs(self.workload, self.seed + 1, self.inputs)
        redrawn = dict(tree.leaves(other))
        trials: list[tuple[str, str, Callable[[], float | None]]] = [("all inputs", "", lambda: self._change(other))]
        trials += [("input", path, lambda path=path, leaf=leaf: self._without(path, leaf, redrawn))  # type: ignore[misc]
                   for path, leaf in tree.leaves(self.inputs)]
        if isinstance(self.fn, torch.nn.Module):
            trials += [("weight", name, lambda tensor=tensor: self._weight(tensor))  # type: ignore[misc]
                       for name, tensor in self.fn.named_parameters()]
        for what, name, trial in trials:
            if time.perf_counter() - start + self.call_s > seconds:
                return
            change = trial()
            if change is not None:
                yield what, name, change

    def _without(self, path: str, leaf: torch.Tensor, redrawn: dict[str, torch.Tensor]) -> float | None:
        """The change when this input alone has other values."""
        new = _other_values(leaf, redrawn.get(path), self.hazardous)
        return None if new is None else self._change(tree.map_tensors(lambda tensor: new if tensor is leaf else tensor, self.inputs))

    def _weight(self, tensor: torch.Tensor) -> float | None:
        before = tensor.detach().clone()
        generator = torch.Generator(device=tensor.device).manual_seed(self.seed)
        with torch.no_grad():
            size = float(before.abs().double().mean()) if before.numel() else 0.0
            noise = torch.rand(before.shape, generator=generator, device=before.device) + 0.5
            tensor.add_(noise.to(tensor.dtype) * (size or 1.0))
            try:
                return self._change(self.inputs)
            finally:
                tensor.copy_(before)

    def _change(self, inputs: Inputs) -> float | None:
        try:
            output = self._run(inputs)
        except NotApplicable:
            return None
        return relative_change(self.output, output)


class _Operators(TorchDispatchMode):  # type: ignore[misc]
    """Names of the operators that ran, and whether floats were made into integers."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.made_integers = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would wrap __torch_dispatch__ in _disable_dynamo, whose first call imports torch._dynamo: 4 s on an H200's machine."""
        return False

    @property
    def hazardous(self) -> bool:
        """Values out of range could end in a device-side assertion."""
        made = self.made_integers or bool(self.names & BINNING)
        return bool(self.names & ASSERTING) or (bool(self.names & INDEXING) and made)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.names.add(name)
        result = func(*args, **(kwargs or {}))
        if name in ("_to_copy", "copy_") and isinstance(result, torch.Tensor):
            source = args[0] if name == "_to_copy" else args[1]
            if isinstance(source, torch.Tensor) and source.is_floating_point() and not result.is_floating_point():
                self.made_integers = True
        return result


def _narrowed(inputs: Inputs) -> bool:
    return any(span(leaf) in ("nonnegative", "unit") for _, leaf in tree.leaves(inputs))


def _finite_share(output: list[Leaf]) -> float:
    floats = [leaf for _, leaf in output if leaf.is_floating_point() and leaf.numel()]
    total = sum(leaf.numel() for leaf in floats)
    return sum(int(torch.isfinite(leaf).sum()) for leaf in floats) / total if total else 1.0


def _same(one: list[Leaf], two: list[Leaf]) -> bool:
    """Bit for bit, NaN equal to NaN."""
    return len(one) == len(two) and all(
        a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())
        for (_, a), (_, b) in zip(one, two, strict=True))


def relative_change(before: list[Leaf], after: list[Leaf]) -> float | None:
    """The largest over the leaves of ||after - before|| / ||before||; share of differing elements for integers. None: not comparable."""
    if [(path, leaf.shape) for path, leaf in before] != [(path, leaf.shape) for path, leaf in after]:
        return None
    largest = 0.0
    for (_, one), (_, two) in zip(before, after, strict=True):
        if not one.numel():
            continue
        if one.is_complex() and two.is_complex():
            one, two = torch.view_as_real(one), torch.view_as_real(two)
        if not one.is_floating_point():
            largest = max(largest, float((one != two).double().mean()))
            continue
        difference, size = (float(torch.linalg.vector_norm(item.double() if item.numel() < 2**24 else item.float()))
                            for item in (two - one, one))
        if difference != difference or size != size:
            return None
        largest = max(largest, difference / size if size > 0 else difference)
    return largest


def _spread(output: list[Leaf]) -> float | None:
    """The largest over the float leaves of (max - min) / max |x|: near 0 where every output is nearly one constant. None: not finite."""
    spreads = []
    for _, leaf in output:
        if not leaf.is_floating_point() or leaf.numel() < 2:
            continue
        low, high = (float(bound) for bound in torch.aminmax(leaf.float()))
        size = max(abs(low), abs(high))
        if size != size or size == float("inf"):
            return None
        spreads.append((high - low) / size if size else 0.0)
    return max(spreads) if spreads else None


def _other_values(leaf: torch.Tensor, redrawn: torch.Tensor | None, hazardous: bool) -> torch.Tensor | None:
    """The same tensor with very different values that are as valid; None where there are none."""
    if not leaf.numel() or leaf.is_complex() or (leaf.element_size() == 1 and leaf.is_floating_point()):
        return None
    same_shape = redrawn is not None and redrawn.shape == leaf.shape and redrawn.dtype == leaf.dtype
    new = redrawn.detach() if same_shape and redrawn is not None else leaf.detach()
    found = span(leaf)
    if found in ("any", "nonnegative") and not hazardous:
        new = new * 1.5 + (0 if found == "nonnegative" else new.double().std().to(new.dtype))
    if not torch.equal(new, leaf):
        return new.requires_grad_(leaf.requires_grad)
    if leaf.dtype == torch.bool:
        return ~leaf
    if leaf.is_floating_point():
        return None if hazardous else (leaf.detach() + 1).requires_grad_(leaf.requires_grad)
    rolled = leaf.reshape(-1).roll(1).reshape(leaf.shape)
    return None if torch.equal(rolled, leaf) else rolled
