"""What kind of workload this is, where that decides which passes apply: words for the report and the log."""

from __future__ import annotations

from pathlib import Path

from ..diagnose.common import matching
from ..model.errors import WorkloadFailed
from ..model.workload import ChangingInput, GenerationLoop
from .passes import Context
from .passes.conditions import own_graph

MOST_SHAPES = 4
"""Shapes that are named of one input."""
MOST_NAMES = 3
"""Places or weights that are named."""
ONE_SHAPE = "Passes that hold for one shape (CUDA graphs, choices measured at a shape, rewrites in the graph) were left out; " \
    "torch.compile makes one program for all sizes."
TRAINING = "a call is its forward and backward together; passes that hold for inference alone were left out."
BACKWARD = "it needs its caller's gradients, so no candidate runs without, and passes that hold for inference alone were left out. With " \
    "torch.enable_grad() around it in the call they can be tried."
SEALED = "nearly all of a call is replayed from a CUDA graph that the workload captured itself, which can't be changed from outside. To " \
    "have it optimised, return the model uncaptured, or captured by torch.cuda.make_graphed_callables, which can be taken off."
DRAWS = r"^aten::(?:native_dropout|bernoulli_?|(?:uniform|normal|random|exponential|log_normal|cauchy|geometric)_|multinomial|rand\w*)$"
OTHERS = "code of torch.compile draws others, so that no candidate with a compile mode gives what the original does: these were left out."
ALIKE = "a candidate must draw the same."
DROPOUT = "Is it dropout of a model in train mode, call `.eval()` in the workload."
SEEN = "What the model runs was recorded once more without it."
UNSEEN = "The model could not be recorded without it, so what it runs is known in part."
NARROW = ("bfloat16", "float16")
CAPTURED = "the host reads nothing on the way, so it can be captured whole."
NOT_CAPTURED = "a CUDA graph of the whole call is left out."


def recognised(context: Context) -> list[str]:
    """A sentence for each thing that makes passes not apply: what was done already, changing shapes or values, random numbers, state in
    attributes, a generation loop, a backward pass in the call."""
    facts, found = context.facts, []
    if facts.training:
        found.append(f"Training step: {TRAINING}")
    if facts.changing_weights:
        found.append(f"Training inside the call: it changes {_names(facts.changing_weights)} itself.")
    elif facts.backward_inside:
        found.append(f"Backward pass inside the call: {BACKWARD}")
    if facts.compiled_inside:
        found.append("Already compiled, from inside: that can't be taken off, so no compile mode was tried.")
    elif facts.already_compiled:
        found.append("Already compiled: the workload's own torch.compile is the original here; it is taken off for passes that work on the "
                     f"model, and each compile mode takes its place. {UNSEEN if context.uncompiled is None else SEEN}")
    if facts.already_graphed:
        found.append("Already graphed: what torch.cuda.make_graphed_callables made of the model is the original here; it is taken off for "
                     "passes that work on the model, and a CUDA graph of the whole call takes its place where that can be captured.")
    elif context.sealed:
        found.append(f"Already graphed: {SEALED}")
    elif own_graph(context) is not None:
        found.append("Already graphed: the workload replays CUDA graphs of its own, so none was made of the whole call.")
    if facts.dtype in NARROW:
        found.append(f"Already in {facts.dtype}: there are no passes to lower precision.")
    if facts.changing_structure:
        found.append(f"Changing structure: {_places(facts.changing_structure)} not the same in every call.")
    if facts.changing_inputs:
        found.append(f"Dynamic shapes: {'; '.join(map(_changing, facts.changing_inputs))}. {ONE_SHAPE}")
    if facts.changing_values:
        places = ", ".join(facts.changing_values)
        found.append(f"Plain values among the inputs follow the seed ({places}): passes that hold for one of them were left out.")
    if drawn := sorted({item.operator_name for item in matching(context.seen.operators, DRAWS)}):
        found.append(f"Random numbers in the call ({_names(tuple(drawn))}): {OTHERS if context.redraws else ALIKE}"
                     f"{'' if facts.training or not context.redraws else f' {DROPOUT}'}")
    if facts.changing_attributes:
        found.append(f"State in attributes: a call binds {_names(facts.changing_attributes)} of the model anew, so passes that work on a "
                     "copy of it, or replay the call, were left out.")
    if facts.loop is not None:
        found.append(f"Generation loop: {_loop(facts.loop)}")
    return found


def unjudgeable(context: Context, workload: Path) -> WorkloadFailed | None:
    """Why the judge can compare no candidate with this workload, whatever passes it has; None where nothing of the kind was seen."""
    facts = context.facts
    if facts.changing_structure:
        return WorkloadFailed(
            "inputs_vary", f"the structure of the inputs follows the seed ({_places(facts.changing_structure)} not the same in every "
            "call), so no candidate can be judged", where=str(workload),
            fix="return the same structure under every seed (shapes and values may follow it)")
    if facts.changing_weights:
        return WorkloadFailed(
            "weights_vary", f"a call trains the model itself (it changes {_names(facts.changing_weights)}), so no two calls give the same, "
            "and no candidate can be judged", where=str(workload),
            fix="leave backward() and the optimizer's step out, and return the loss: of a module in train mode that is a training step")
    return None


def _places(paths: tuple[str, ...]) -> str:
    if paths == ("",):
        return "a lone input is"
    return f"input {paths[0]} is" if len(paths) == 1 else f"inputs {_names(tuple(path or 'alone' for path in paths))} are"


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"


def _changing(item: ChangingInput) -> str:
    name = f"input {item.path}" if item.path else "the input"
    shapes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in item.shapes[:MOST_SHAPES])
    more = ", ..." if len(item.shapes) > MOST_SHAPES else ""
    if item.dims is None:
        return f"{name} changes its number of dimensions or its dtype ({shapes}{more})"
    dims = f"dimension{'' if len(item.dims) == 1 else 's'} {', '.join(map(str, item.dims))}"
    return f"{name} changes in {dims} ({f'seen: {shapes}{more}' if len(item.shapes) > 1 else 'marked as dynamic'})"


def _loop(loop: GenerationLoop) -> str:
    grows = f", sizes grow from {loop.grows[0]} to {loop.grows[1]}" if loop.grows is not None else ""
    reads = f", the host reads {loop.reads} values on the way" if loop.reads else ""
    return f"one call runs `{loop.module}` {loop.calls} times{grows}{reads}; {NOT_CAPTURED if loop.reads else CAPTURED}"
