"""What only the reference's worker does: fresh inputs, the float64 oracle, and runs in lower precision as yardsticks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import tree
from .failures import workload_failed
from .judge_distributions import perturbed
from .judge_inputs import plain_leaves
from .judge_program import Program
from .judge_tensors import WRITTEN, Leaf, clone_like
from .loaders import Inputs, LoadedWorkload
from .rewrites.float32_flags import all_as, float32_flags, under_flags
from .rewrites.twins import twin_of
from .rewrites.unwrap_compiled import uncompiled

JITTER_LOW, JITTER_HIGH = 0.5, 1.5
"""A generator that gives the same floats under every seed has them scaled element by element: zeros, signs and masks stay."""


class NotApplicable(Exception):
    """This run cannot serve as oracle or yardstick; says why."""


def fresh_inputs(workload: LoadedWorkload, seed: int, earlier: Inputs | None) -> tuple[Inputs, list[str]]:
    """Inputs under `seed`, and the paths of float leaves that did not change by themselves since `earlier`."""
    inputs = workload.fresh_inputs(seed)
    own = (workload.args, workload.kwargs)
    if [path for path, _ in [*tree.leaves(inputs), *plain_leaves(inputs)]] != [path for path, _ in [*tree.leaves(own), *plain_leaves(own)]]:
        raise workload_failed("inputs_vary", "the structure of the inputs follows the seed, so they cannot be given to a candidate",
                              where=workload.path, fix="return the same structure under every seed (shapes and values may follow it)")
    if earlier is None:
        return inputs, []
    before = dict(tree.leaves(earlier))
    stuck = {id(leaf): path for path, leaf in tree.leaves(inputs)
             if leaf.is_floating_point() and leaf.numel() and path in before and _equal(leaf, before[path])}
    if not stuck:
        return inputs, []
    generator = torch.Generator().manual_seed(seed)
    return tree.map_tensors(lambda leaf: _jitter(leaf, generator) if id(leaf) in stuck else leaf, inputs), sorted(stuck.values())


def oracle(workload: LoadedWorkload, inputs: Inputs, seed: int, expected: list[Leaf], written: list[str]) -> list[Leaf]:
    """The outputs of a float64 run. Raises NotApplicable, with the reason, where there is none."""
    if not any(leaf.is_floating_point() or leaf.is_complex() for _, leaf in expected):
        raise NotApplicable("the output has no floating-point values")
    own = workload.reference if workload.form == "versions" else None
    if own is not None:
        try:
            return _float64_run(workload, own, inputs, seed, expected, written)
        except NotApplicable:
            pass
    return _float64_run(workload, copied(workload.model, torch.float64), inputs, seed, expected, written)


def _float64_run(
    workload: LoadedWorkload, fn: Callable[..., Any], inputs: Inputs, seed: int, expected: list[Leaf], written: list[str],
) -> list[Leaf]:
    with _default_dtype(torch.float64):
        leaves = run_copy(workload, fn, inputs, torch.float64, seed, written)
    if [path for path, _ in leaves] != [path for path, _ in expected]:
        raise NotApplicable("in float64 the output has another structure")
    for (path, leaf), (_, wanted) in zip(leaves, expected, strict=True):
        if leaf.shape != wanted.shape:
            raise NotApplicable(f"in float64 output {path!r} has another shape")
        if (wanted.is_floating_point() or wanted.is_complex()) and leaf.dtype != dtype_in(torch.float64, wanted.dtype):
            raise NotApplicable(f"output {path!r} stays {leaf.dtype} in a float64 run")
    # A workload's own reference may compute on the host; which elements of a large one are compared follows the device.
    return [(path, leaf.to(wanted.device)) for (path, leaf), (_, wanted) in zip(leaves, expected, strict=True)]


def perturbed_run(
    workload: LoadedWorkload, inputs: Inputs, seed: int, expected: list[Leaf], written: list[str], roundoff: float, noise_seed: int,
) -> list[Leaf]:
    """The oracle on inputs moved by rounding errors (see judge_distributions.perturbed); without one in the reference's own dtypes.

    Its distance from the oracle is what any candidate that rounds may show there. Raises NotApplicable.
    """
    try:
        return oracle(workload, perturbed(inputs, roundoff, noise_seed, torch.float64), seed, expected, written)
    except NotApplicable:
        return run_copy(workload, copied(workload.model, None), perturbed(inputs, roundoff, noise_seed, None), None, seed, written)


def yardstick(workload: LoadedWorkload, inputs: Inputs, seed: int, precision: str, how: str, written: list[str]) -> list[Leaf]:
    """The reference run in a lower precision. how: "flags" (tf32), "autocast" or "converted" (bf16). Raises NotApplicable."""
    if precision == "tf32":
        need_tf32(workload)
        with under_flags(all_as(float32_flags(), tf32=True)):
            return run_copy(workload, copied(workload.model, None), inputs, None, seed, written)
    if how == "autocast":
        with torch.autocast(workload.device, dtype=torch.bfloat16):
            return run_copy(workload, copied(workload.model, None), inputs, None, seed, written)
    return run_copy(workload, copied(workload.model, torch.bfloat16), inputs, torch.bfloat16, seed, written)


def need_tf32(workload: LoadedWorkload) -> None:
    """Raises NotApplicable where the device has no TF32."""
    if workload.device != "cuda":
        raise NotApplicable("the CPU has no TF32")


def dtype_in(run: torch.dtype | None, own: torch.dtype) -> torch.dtype:
    """What a tensor of dtype `own` is in a run in `run` (None: in its own dtypes): a complex one complex128 in a float64 run, and itself in
    others; integers stay. Module.to would take a complex tensor's real part alone."""
    if run is None or not (own.is_floating_point or own.is_complex):
        return own
    if own.is_complex:
        return torch.complex128 if run == torch.float64 else own
    return run


def copied(model: Callable[..., Any], dtype: torch.dtype | None) -> Callable[..., Any]:
    """A deep copy of a module in another dtype (None: its own); a function as it is. Both without torch.compile: a compiled part or method
    would go on with the original's weights. Raises NotApplicable."""
    plain = uncompiled(model)
    inner = model if plain is None else plain
    if not isinstance(inner, torch.nn.Module):
        return inner
    try:
        duplicate = twin_of(inner)
        if dtype is not None:
            duplicate._apply(lambda tensor: tensor.to(dtype_in(dtype, tensor.dtype)))  # as Module.to does, which knows one dtype for all
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise NotApplicable(f"the model cannot be copied or converted: {type(error).__name__}: {error}") from error
    call: Callable[..., Any] = duplicate
    return call


def run_copy(
    workload: LoadedWorkload, fn: Callable[..., Any], inputs: Inputs, dtype: torch.dtype | None, seed: int, written: list[str],
) -> list[Leaf]:
    """One call of `fn` on converted copies of the inputs: its leaves and the inputs at the `written` paths.

    Inference runs without a graph where it can: float64 with a graph is three times the memory. Raises NotApplicable with the exception
    that the call ended in.
    """
    def convert(leaf: torch.Tensor) -> torch.Tensor:
        wanted = dtype_in(dtype, leaf.dtype)
        if wanted == leaf.dtype:
            return clone_like(leaf)
        return leaf.detach().to(wanted, copy=True).requires_grad_(leaf.requires_grad)

    try:
        if not workload.training:
            try:
                return _one_call(workload, fn, tree.map_tensors(convert, inputs), seed, written)
            except RuntimeError as error:
                if "grad" not in str(error):  # a forward that calls autograd itself needs the graph
                    raise
        with torch.enable_grad():
            return _one_call(workload, fn, tree.map_tensors(convert, inputs), seed, written, graph=True)
    except Exception as error:  # the workload's own code in a dtype it was not written for: whatever it raises means "no such run"
        words = str(error).strip().splitlines() or ["no message"]
        raise NotApplicable(f"{type(error).__name__}: {words[0]}") from error


def _one_call(
    workload: LoadedWorkload, fn: Callable[..., Any], inputs: Inputs, seed: int, written: list[str], *, graph: bool = False,
) -> list[Leaf]:
    with torch.set_grad_enabled(graph):
        leaves, _ = Program(workload, fn).call(inputs, seed)
    after = dict(tree.leaves(inputs))
    return [(path, leaf.detach()) for path, leaf in [*leaves, *((WRITTEN + path, after[path]) for path in written)]]


def _equal(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.shape == two.shape and one.dtype == two.dtype and bool(torch.equal(one, two))


def _jitter(leaf: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    factor = torch.rand(leaf.shape, generator=generator) * (JITTER_HIGH - JITTER_LOW) + JITTER_LOW
    return (leaf.detach() * factor.to(leaf.device, leaf.dtype)).requires_grad_(leaf.requires_grad)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Tensors that the model makes in its forward follow too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
