"""What is not the same in every call (inputs' structure, shapes and plain values under other seeds), and what goes on within one: sizes
that grow (generation loops), a backward pass.

The optimiser asks for it: rewrites that are made for one shape, or for calls without gradients, must know.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from . import tree
from .facts import is_compiled, is_scripted
from .judge_inputs import plain_leaves
from .loaders import LoadedWorkload, split_inputs

SEEDS = 4
"""Other seeds that inputs are made under."""
LIMIT_S = 2.0
"""No further seed is tried after so long: making inputs can mean making the model."""
LEAST_STEPS = 4
"""A loop has at least so many calls of one module, and a growing size as many values."""
MOST_OPERATORS = 100_000
"""Operators whose sizes are noted."""
MARKS = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices")
"""Where torch._dynamo.mark_dynamic and maybe_mark_dynamic note dimensions."""
EDGE = 8
"""Of each dimension of a parameter so many values are compared before and after a call. Not its version: an update through .data leaves
that as it was, and one that is taken back does not."""
PLAIN = (int, float, complex, str, bytes, torch.dtype, torch.device)
WORKED_OUT = ("_v", "_orig")
"""How the names of parameters end from which such functions of torch.nn.utils work out the one that a layer calls by its plain name."""
READS = ("_local_scalar_dense",)
COPIES = ("_to_copy",)

Dims = tuple[tuple[int, ...], ...]


def describe(workload: LoadedWorkload, seed: int) -> dict[str, Any]:
    """The fields of WorkloadFacts that ProbeRequest.variation asks for. Exceptions of the workload's own code pass through."""
    fresh, took = [], []
    for other in range(1, SEEDS + 1):
        start = time.perf_counter()
        fresh.append(workload.generated(seed + other))
        took.append(time.perf_counter() - start)
        if sum(took) > LIMIT_S:
            break
    raws = [workload.raw_input, *fresh]
    if changing_structure(raws):  # calls may have written into the one that is at hand
        raws = fresh
    return {"changing_inputs": changing_inputs(raws), "changing_values": changing_values(raws),
            "changing_structure": changing_structure(raws), "inputs_s": min(took), **watched(workload)}


def changing_inputs(raws: Sequence[Any]) -> list[dict[str, Any]]:
    """ChangingInput dicts of the tensors that differ between these inputs, or are marked; none where the structure differs."""
    rows = [tree.leaves(raw) for raw in raws]
    if any([path for path, _ in row] != [path for path, _ in rows[0]] for row in rows):
        return []
    found = []
    for column in zip(*rows, strict=True):
        tensors = [tensor for _, tensor in column]
        shapes = list(dict.fromkeys(tuple(tensor.shape) for tensor in tensors))
        dims: list[int] | None = None
        if len({len(shape) for shape in shapes}) == 1 and len({tensor.dtype for tensor in tensors}) == 1:
            marked = {int(dim) for tensor in tensors for name in MARKS for dim in getattr(tensor, name, ())}
            dims = [dim for dim in range(len(shapes[0])) if dim in marked or len({shape[dim] for shape in shapes}) > 1]
        if dims is None or dims:
            found.append({"path": column[0][0], "dims": dims, "shapes": [list(shape) for shape in shapes]})
    return found


def changing_values(raws: Sequence[Any]) -> list[str]:
    """Paths in (args, kwargs) of the numbers, words and switches that differ between these inputs."""
    rows = [plain_leaves(split_inputs(raw)) for raw in raws]
    if any([path for path, _ in row] != [path for path, _ in rows[0]] for row in rows):
        return []
    return [column[0][0] for column in zip(*rows, strict=True) if len({repr(value) for _, value in column}) > 1]


def changing_structure(raws: Sequence[Any]) -> list[str]:
    """Paths that not all of these inputs have, or that hold a tensor in one and something else, or None, in another; all paths where only
    their order differs."""
    rows = [[*((path, "tensor") for path, _ in tree.leaves(raw)), *((path, value is None) for path, value in plain_leaves(raw))]
            for raw in raws]
    if all(row == rows[0] for row in rows):
        return []
    every = set().union(*rows)
    return sorted({path for path, _ in every.difference(set(rows[0]).intersection(*rows)) or every})


def watched(workload: LoadedWorkload) -> dict[str, Any]:
    """The fields loop, backward_inside, changing_weights, changing_attributes and written_buffers, from one more call that is watched; as
    if there were nothing for what can't be watched (compiled callables, whose hooks would compile them anew, and scripted ones), and for
    training steps."""
    found: dict[str, Any] = {"loop": None, "backward_inside": False, "changing_weights": [], "changing_attributes": [],
                             "written_buffers": []}
    if workload.training or is_compiled(workload.model) or is_scripted(workload.model):
        return found
    calls: dict[torch.nn.Module, int] = {}
    before, watch = _Weights(workload.model), _Watch(workload.device)
    bound, versions = _attributes(workload.model), _versions(workload.model)

    def entered(module: torch.nn.Module, _args: Any) -> None:
        calls[module] = calls.get(module, 0) + 1
        watch.is_aside = True
        before.meets(module)
        watch.is_aside = False

    hook = register_module_forward_pre_hook(entered)
    try:
        with watch:
            workload.step()
    finally:
        hook.remove()
    now = _attributes(workload.model)
    found["changing_attributes"] = sorted(
        name for name in now.keys() | bound.keys() if name not in now or name not in bound or not _is_same(now[name], bound[name]))
    found["written_buffers"] = sorted(name for name, version in _versions(workload.model).items()
                                      if name not in found["changing_attributes"] and version > versions.get(name, version))
    found["loop"] = _loop(workload, watch, calls)
    if watch.saw_backward:
        found["changing_weights"] = before.changed()
        found["backward_inside"] = bool(found["changing_weights"]) or _fails_without_gradients(workload)
    return found


def _loop(workload: LoadedWorkload, watch: _Watch, calls: dict[torch.nn.Module, int]) -> dict[str, Any] | None:
    """A GenerationLoop dict of the watched call, in which each module was called so often; None where it is none."""
    again = [(sum(weight.numel() for weight in module.parameters()), module) for module, count in calls.items() if count >= LEAST_STEPS]
    size, module = max(again, key=lambda item: item[0], default=(0, None))
    if module is None or not size:
        return None
    grown = growth(watch.sizes.values())
    if grown is None and watch.reads < calls[module] - 1:
        return None
    return {"module": _name(module, workload.model), "calls": calls[module], "grows": grown, "reads": watch.reads}


def _attributes(model: Any) -> dict[str, Any]:
    """Name -> what it is bound to: attributes of a model and its parts that are no layers, parameters or hooks; buffers among them. Not the
    weight that the older weight_norm and spectral_norm of torch.nn.utils work out from such a parameter in each call."""
    found: dict[str, Any] = {}
    usual = vars(torch.nn.Module()).keys()
    for place, module in model.named_modules() if isinstance(model, torch.nn.Module) else ():
        own = {**vars(module), **module._buffers}
        found |= {f"{place}.{name}" if place else name: value for name, value in own.items()
                  if name not in usual and not any(f"{name}{end}" in module._parameters for end in WORKED_OUT)}
    return found


def _is_same(one: Any, other: Any) -> bool:
    """One object, or equal plain values: a size that a model notes at each call is none of its state."""
    if type(one) is not type(other) or one is other:
        return one is other
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, PLAIN) and bool(one == other)


def _versions(model: Any) -> dict[str, int]:
    """Name -> how often a buffer was written to; none that keeps no count."""
    buffers = model.named_buffers() if isinstance(model, torch.nn.Module) else ()
    return {name: buffer._version for name, buffer in buffers if not buffer.is_inference()}


class _Weights:
    """Some values of each parameter as they were: of a model before the call, of the modules that a bare function calls when it first
    enters them."""

    def __init__(self, model: Any) -> None:
        self._known: set[int] = set()
        self._before: list[tuple[str, torch.nn.Module, dict[str, torch.Tensor]]] = []
        self._is_model = isinstance(model, torch.nn.Module)
        if self._is_model:
            self._note(model, "")

    def meets(self, module: torch.nn.Module) -> None:
        if not self._is_model and id(module) not in self._known:
            self._note(module, f"{type(module).__name__}.")

    def changed(self) -> list[str]:
        """Names of those that have other values now."""
        return [prefix + name for prefix, module, before in self._before for name, values in _edges(module).items()
                if name in before and not torch.equal(values, before[name])]

    def _note(self, module: torch.nn.Module, prefix: str) -> None:
        self._known |= {id(part) for part in module.modules()}
        self._before.append((prefix, module, _edges(module)))


def _edges(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    found = {}
    for name, weight in module.named_parameters():
        with suppress(RuntimeError, NotImplementedError, TypeError):  # kinds of tensors that can't be cut
            found[name] = weight.detach()[(slice(EDGE),) * weight.dim()].clone().nan_to_num()
    return found


def _fails_without_gradients(workload: LoadedWorkload) -> bool:
    """Whether a call fails where its caller has turned gradients off; one that turns them on itself does not. Asked only where a call
    leaves the weights as they were."""
    with torch.no_grad():
        try:
            workload.step()
        except Exception:  # noqa: BLE001 the workload's own: it may look for a gradient before torch does
            return True
    return False


def _in_backward() -> bool:
    """Whether this thread runs a backward pass. By what torch's own checkpointing asks, which is no documented name."""
    ask = getattr(torch._C, "_current_graph_task_id", None)
    return ask is not None and ask() != -1


def growth(operators: Iterable[Sequence[Dims]]) -> tuple[int, int] | None:
    """First and last size of the longest run that grows by one step. operators: of each, the shapes of its inputs, call by call; equal
    sizes in a row count once (the layers of a step)."""
    best: list[int] = []
    for calls in operators:
        alike: dict[tuple[int, ...], list[Dims]] = {}
        for dims in calls:
            alike.setdefault(tuple(len(shape) for shape in dims), []).append(dims)
        for ranks, group in alike.items():
            for place, rank in enumerate(ranks):
                for dim in range(rank):
                    best = max(best, _longest_run([dims[place][dim] for dims in group]), key=len)
    return (best[0], best[-1]) if len(best) >= LEAST_STEPS else None


def _longest_run(sizes: Sequence[int]) -> list[int]:
    """The longest stretch of different sizes in a row that rises by the same step."""
    distinct = [size for index, size in enumerate(sizes) if index == 0 or size != sizes[index - 1]]
    best: list[int] = []
    run: list[int] = []
    for size in distinct:
        if len(run) > 1 and size - run[-1] != run[1] - run[0]:
            run = run[-1:]
        if run and size < run[-1]:
            run = []
        run = [*run, size]
        best = max(best, run, key=len)
    return best


def _name(module: torch.nn.Module, model: Any) -> str:
    named = model.named_modules() if isinstance(model, torch.nn.Module) else ()
    return next((name for name, one in named if one is module and name), type(module).__name__)


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Notes the shapes of every operator's inputs, how often the host reads from the device, and whether a backward pass runs."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """See count.OpRecorder."""
        return False

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.reads, self.noted, self.saw_backward = device, 0, 0, False
        self.is_aside = False
        """Operators are not the workload's."""
        self.sizes: dict[str, list[Dims]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if self.is_aside:
            return output
        self.saw_backward = self.saw_backward or _in_backward()
        name = str(getattr(getattr(func, "_overloadpacket", None), "__name__", ""))
        inputs = tree.tensors((list(args), kwargs or {}))
        here = any(tensor.device.type == self.device for tensor in inputs)
        left = self.device != "cpu" and isinstance(output, torch.Tensor) and output.device.type == "cpu"
        self.reads += here and (name in READS or (name in COPIES and left))
        if self.noted < MOST_OPERATORS:
            self.noted += 1
            self.sizes.setdefault(name, []).append(tuple(tuple(map(int, tensor.shape)) for tensor in inputs))
        return output
