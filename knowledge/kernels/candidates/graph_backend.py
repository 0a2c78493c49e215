"""A torch.compile backend that edits Dynamo's graph before Inductor gets it: attention that is written out becomes one call.

Trigger: kernel_share=41% in aten::bmm and aten::_softmax. Has to fall; the bytes moved too. Copy it, and put your own pattern into `edit`.
Weights are placeholders of the graph here. Only the functions that the model calls are seen (F.softmax), no ATen operators.
"""

import operator
import sys

import torch
import torch.nn.functional as F
from torch._dynamo import register_backend
from torch._inductor.compile_fx import compile_fx

BACKEND = "attention_in_one_call"  # without a name: def optimize(model, inputs): return torch.compile(model, backend=edited)
PRODUCTS = (operator.matmul, torch.matmul, torch.bmm, "matmul", "bmm")
SOFTMAXES = (F.softmax, torch.softmax, "softmax")


def calls(node, targets):
    return isinstance(node, torch.fx.Node) and node.op in ("call_function", "call_method") and node.target in targets


def attention_at(node):
    """(query, key, value, scale) of softmax(query @ key.transpose(-2, -1) * scale, -1) @ value; None for anything else."""
    if not calls(node, PRODUCTS) or not calls(node.args[0], SOFTMAXES):
        return None
    softmax, value = node.args
    dim = softmax.args[1] if len(softmax.args) > 1 else softmax.kwargs.get("dim")
    scores, scale = softmax.args[0], 1.0
    if calls(scores, (operator.mul, torch.mul)) and isinstance(scores.args[1], (int, float)):
        scores, scale = scores.args
    elif calls(scores, (operator.truediv, torch.div)) and isinstance(scores.args[1], (int, float)):
        scores, scale = scores.args[0], 1.0 / scores.args[1]
    if dim != -1 or set(softmax.kwargs) - {"dim"} or not calls(scores, PRODUCTS):
        return None
    query, turned = scores.args
    if not calls(turned, ("transpose", torch.transpose)) or set(turned.args[1:]) != {-2, -1}:
        return None
    return query, turned.args[0], value, scale


def edit(graph):
    """Changes the graph in place. Returns how many places."""
    places = 0
    for node in list(graph.nodes):
        found = attention_at(node)
        if found is not None:
            *tensors, scale = found
            with graph.inserting_before(node):
                new = graph.call_function(F.scaled_dot_product_attention, tuple(tensors), {"scale": scale})
            node.replace_all_uses_with(new)
            places += 1
    graph.eliminate_dead_code()
    return places


@register_backend(name=BACKEND)
def edited(module, example_inputs):
    sys.stderr.write(f"places changed: {edit(module.graph)}\n")  # in the judge's raw/candidate.log: 0: the pattern missed
    module.recompile()
    return compile_fx(module, example_inputs)
