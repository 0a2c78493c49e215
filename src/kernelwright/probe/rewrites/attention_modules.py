"""The modules of a model that call scaled_dot_product_attention, each traced alone (torch.fx) with other attention in it: the rest of the
model may be what can't be traced. Copied into files that replace it."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from .attention import Attention, SplitAttention
from .attention_choice import AttentionCall
from .side_calls import on_the_side
from .tracing import traced_call
from .trees import leaves
from .twins import own_tensors, twin_of, with_parts

NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
ModuleCall = tuple[tuple[Any, ...], dict[str, Any]]


@contextmanager
def noted_calls(model: torch.nn.Module) -> Iterator[dict[torch.nn.Module, list[ModuleCall]]]:
    """Within: the calls, with their arguments, of each module whose own forward calls scaled_dot_product_attention."""
    found: dict[torch.nn.Module, list[ModuleCall]] = {}
    running: list[tuple[torch.nn.Module, ModuleCall]] = []

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is F.scaled_dot_product_attention and running:
                module, call = running[-1]
                calls = found.setdefault(module, [])
                if not any(known is call for known in calls):
                    calls.append(call)
            return function(*args, **(kwargs or {}))

    watches = [watch for module in model.modules() for watch in (
        module.register_forward_pre_hook(lambda module, args, kwargs: running.append((module, (args, kwargs))), with_kwargs=True),
        module.register_forward_hook(lambda *_given: (running.pop(), None)[1]))]
    try:
        with Watch():
            yield found
    finally:
        for watch in watches:
            watch.remove()


def same_constants(calls: list[ModuleCall]) -> bool:
    """Whether all that is no tensor is the same in each call of a module: tracing fixes it."""
    described = [[(path, "tensor" if isinstance(leaf, torch.Tensor) else leaf) for path, leaf in leaves(call)] for call in calls]
    return all(one == described[0] for one in described)


class ChoosingRun(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a traced module and chooses for each attention in it, on its real tensors."""

    def __init__(self, graph: torch.fx.GraphModule, choose: Callable[[AttentionCall], Attention | None]) -> None:
        super().__init__(graph)
        self.choose = choose
        self.decided: SplitAttention | None = None
        self.chosen: dict[torch.fx.Node, SplitAttention] = {}

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Each attention that the kernel can compute is decided here."""
        if target is F.scaled_dot_product_attention:
            try:
                call = AttentionCall(*args, **kwargs)
            except NotImplementedError:
                return super().call_function(target, args, kwargs)
            how = self.choose(call)
            self.decided = None if how is None else SplitAttention(how, call.rows_first)
            return call.out
        return super().call_function(target, args, kwargs)

    def run_node(self, node: torch.fx.Node) -> Any:
        """Notes which node was decided on."""
        value = super().run_node(node)
        if self.decided is not None:
            self.chosen[node], self.decided = self.decided, None
        return value


def with_attention(
    module: torch.nn.Module, call: ModuleCall, choose: Callable[[AttentionCall], Attention | None],
) -> torch.fx.GraphModule | None:
    """A traced copy of a module (weights and submodules shared) whose attentions are those chosen; None where none was."""
    graph = traced_call(module, *call)
    named_as_in(graph, module)
    run = ChoosingRun(graph, choose)
    names = iter(name for name in (f"attention_{number}" for number in itertools.count()) if not hasattr(graph, name))
    run.run(*by_position(graph, call))
    for node, attention in run.chosen.items():
        name = next(names)
        graph.add_submodule(name, attention)
        with graph.graph.inserting_after(node):
            new = graph.graph.call_module(name, node.args, node.kwargs)
        node.replace_all_uses_with(new)
        graph.graph.erase_node(node)
    if not run.chosen:
        return None
    graph.recompile()
    read = {name: value for name, value in vars(module).items() if not name.startswith("_") and not hasattr(graph, name)}
    for name, value in read.items():  # what others read of the module
        setattr(graph, name, value)
    graph.meta["_user_preserved_attributes"] = read  # torch.fx's own name: a copy of the module has them too
    return graph


def named_as_in(graph: torch.fx.GraphModule, module: torch.nn.Module) -> None:
    """Gives a traced module's arguments the names and defaults of the module's own: others may call by name, or leave some out."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    parameters = [item for item in inspect.signature(module.forward).parameters.values() if item.kind in NAMED]
    if len(placeholders) != len(parameters):
        raise NotImplementedError("not applicable: torch.fx can't trace a module with attention that takes any number of arguments")
    for node, parameter in zip(placeholders, parameters, strict=True):
        node.target = parameter.name
        node.args = () if parameter.default is parameter.empty else (parameter.default,)
    graph.recompile()


def by_position(graph: torch.fx.GraphModule, call: ModuleCall) -> list[Any]:
    """The arguments of a call of a traced module, each in its place."""
    signature = inspect.signature(graph.forward)
    bound = signature.bind(*call[0], **call[1])
    bound.apply_defaults()
    return [bound.arguments[name] for name in signature.parameters]


def replaced_attention(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], choose: Callable[[AttentionCall], Attention | None],
) -> torch.nn.Module:
    """A copy of the model (weights shared) whose attentions are those that choose gives. NotImplementedError where it gives none."""
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: needs an nn.Module")
    twin = twin_of(model, own_tensors(model))
    hooked = {module for module in twin.modules() if module._forward_hooks or module._forward_pre_hooks}
    with on_the_side(twin), torch.no_grad(), noted_calls(twin) as found:
        twin(*args, **kwargs)
    new: dict[torch.nn.Module, torch.nn.Module] = {}
    reasons = []
    for module, calls in found.items():
        if hooked.intersection(module.modules()) or not same_constants(calls):
            continue
        try:
            with torch.no_grad():
                graph = with_attention(module, calls[0], choose)
        except NotImplementedError as error:
            reasons.append(str(error))
            continue
        if graph is not None:
            new[module] = graph
            for part in set(graph.modules()).difference(module.modules()):  # what it holds stays in the mode that it is in
                part.training = module.training
    if not new:
        why = reasons[0] if reasons else "not applicable: no float32 attention is faster, and at least as exact, in the kernel"
        raise NotImplementedError(why)
    return with_parts(twin, new)
