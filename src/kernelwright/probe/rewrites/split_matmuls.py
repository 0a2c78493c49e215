"""float32 matrix products that no nn.Linear makes on tensor cores, error-compensated: by matmul, @, mm, addmm, F.linear or einsum.

The right operand is split once where it is a weight, else at each call. A place is changed where that measures faster at its shapes and
strides, the splits included, and errs by no more than the library's float32.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .float32_flags import float32_flags, products_are_narrow
from .graphs import arguments, call_function, calls, constant_node, random_like, replace, tensor_of, undisturbed, weight_of, writes
from .product_choice import COMPENSATED, LEAST_ROWS, Chooser, need_tensor_cores
from .products import Product, product_of

LEAST_MATMUL = 10**8
"""Multiplications below which a product is left to the library: what it takes beside them (launches, splits) is of the same size."""
MATMULS_ON = "cuda"
"""Where the kernels run; elsewhere no place is taken."""
MATMULS = (operator.matmul, torch.matmul, "matmul", "__matmul__")
BOTH_2D = (torch.mm, "mm")
ADDMMS = (torch.addmm, "addmm")
ADDING = (operator.add, torch.add, "add")


def matmul_now(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor | None, product: str) -> torch.Tensor:
    """x (..., K), y (K, N), both split now -> x y + bias (..., N)."""
    how = product_of(product)
    if y.is_cuda and y.get_device() != torch.cuda.current_device():  # Triton launches on the current one
        with torch.cuda.device(y.device):
            return matmul_now(x, y, bias, product)
    parts, scale = how.prepare_now(y.t())
    return how.computed(x, parts, scale, bias, "none")


def matmul_shape(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor | None, product: str) -> torch.Tensor:
    """What the result looks like."""
    return x.new_empty((*x.shape[:-1], y.shape[1]))


torch.library.custom_op("split_matmuls::product", matmul_now, mutates_args=(),
                        schema="(Tensor x, Tensor y, Tensor? bias, str product) -> Tensor").register_fake(matmul_shape)


class MatmulPlace:
    """A product in Dynamo's graph, left (..., K) times right (K, N) [+ bias (N)], and what is known of its operands.

    last: the node whose value is replaced. value: the right operand as (N, K) where it is a weight of the model; None where it moves.
    """

    def __init__(
        self, node: torch.fx.Node, operands: Sequence[Any], transposed: bool, graph: torch.fx.GraphModule, example_inputs: Sequence[Any],
    ) -> None:
        self.left, self.right, self.bias = operands
        self.last, self.transposed = node, transposed
        weight, turned = (self.right, False) if not is_turned(self.right) else (self.right.args[0], True)
        value = weight_of(weight, graph, example_inputs)
        if value is not None and any(writes(user) for view in weight.users if matmul_operands(view) is None for user in view.users):
            value = None
        self.weight = weight
        self.value = None if value is None else value.detach() if turned != transposed else value.detach().t()
        self.x, self.y, self.shift = tensor_of(self.left), tensor_of(self.right), tensor_of(self.bias)
        if self.y is not None and transposed:
            self.y = self.y.t() if self.y.dim() == 2 else None

    def computable(self) -> bool:
        """float32, sizes that are fixed, the result as it should be, and no gradient asked for."""
        x, y, out = self.x, self.y, tensor_of(self.last)
        if x is None or y is None or out is None or (self.bias is not None and self.shift is None) or x.dim() < 2 or y.dim() != 2:
            return False
        known = [x, y, out, *([] if self.shift is None else [self.shift])]
        if not all(item.dtype == torch.float32 and item.device == x.device for item in known):
            return False
        if not all(type(number) is int for item in known for number in (*item.shape, *item.stride())):
            return False
        if torch.is_grad_enabled() and any(item.requires_grad for item in known):
            return False
        repeats = any(step == 0 and size > 1 for item in (x, y) for size, step in zip(item.shape, item.stride(), strict=True))
        fits = x.shape[-1] == y.shape[0] and tuple(out.shape) == (*x.shape[:-1], y.shape[1]) and out.numel() > 0 < y.numel()
        return not repeats and fits and (self.shift is None or (tuple(self.shift.shape) == (y.shape[1],) and self.shift.is_contiguous()))

    def take_in_bias(self, graph: torch.fx.GraphModule) -> None:
        """Makes an addition of N numbers right behind the product a part of it."""
        user: Any = next(iter(self.last.users)) if len(self.last.users) == 1 else None
        if self.bias is not None or not calls(user, *ADDING) or user.kwargs or len(user.args) != 2:
            return
        other = user.args[1] if user.args[0] is self.last else user.args[0]
        look, out, made = tensor_of(other), tensor_of(user), tensor_of(self.last)
        if look is None or out is None or made is None or look.dim() != 1 or look.shape[0] != made.shape[-1] or out.shape != made.shape:
            return
        alike = look.dtype == out.dtype == made.dtype and look.device == made.device and look.is_contiguous()
        if alike and undisturbed(graph, [self.last, user]):
            self.bias, self.shift, self.last = other, look, user

    def put(self, graph: torch.fx.GraphModule, how: Product, parts: dict[Any, Sequence[Any]]) -> None:
        """The operator in the place of the node. parts: those of weights, shared by the places that read one."""
        right, bias = self.right, self.bias
        if self.value is not None:
            key = (self.weight, self.value.stride(), how.name)
            if key not in parts:
                made = how.prepare(self.value)
                parts[key] = [None if item is None else constant_node(graph, name, item)
                              for name, item in zip(("matmul_parts", "matmul_scale"), made, strict=True)]
            target = torch.ops.tensor_core_products.opaque_linear.default
            new = call_function(graph, self.last, target, self.left, *parts[key], bias, "none", how.name)
        else:
            right = call_function(graph, self.last, torch.t, right) if self.transposed else right
            new = call_function(graph, self.last, torch.ops.split_matmuls.product.default, self.left, right, bias, how.name)
        replace(self.last, new)


def is_turned(node: Any) -> bool:
    """Whether a node is its argument of two dimensions transposed."""
    look = tensor_of(node.args[0]) if isinstance(node, torch.fx.Node) and node.args else None
    if look is None or look.dim() != 2 or node.kwargs:
        return False
    rest = node.args[1:]
    if calls(node, getattr):
        return rest[0] in ("T", "mT")
    if calls(node, torch.transpose, "transpose"):
        return len(rest) == 2 and {dim % 2 for dim in rest} == {0, 1}
    if calls(node, torch.permute, "permute"):
        return [dim % 2 for dim in (rest if len(rest) == 2 else rest[0])] == [1, 0]
    return calls(node, torch.t, "t")


def contracts_last(equation: Any) -> bool:
    """Whether einsum's equation is a product of left (..., K) and right (K, N): "abk,kn->abn"."""
    found = re.fullmatch(r"([A-Za-z]+)([A-Za-z]),\2([A-Za-z])->\1\3", equation.replace(" ", "")) if isinstance(equation, str) else None
    letters = "".join(found.groups()) if found is not None else "aa"
    return len(set(letters)) == len(letters)


def matmul_operands(node: torch.fx.Node) -> tuple[Sequence[Any], bool] | None:
    """((left, right, bias), whether right is (N, K)) of a call that is such a product, wherever its operands lie; None for any other."""
    if "out" in node.kwargs or "out_dtype" in node.kwargs:
        return None
    if calls(node, F.linear):
        return arguments(node, "input", "weight", "bias"), True
    if calls(node, *MATMULS):
        return [*arguments(node, "input" if node.op == "call_function" else "self", "other"), None], False
    if calls(node, *BOTH_2D) and len(node.args) + len(node.kwargs) == 2:
        return [*arguments(node, "input", "mat2"), None], False
    if calls(node, *ADDMMS) and len(node.args) + len(node.kwargs) == 3:
        bias, left, right = arguments(node, "input", "mat1", "mat2")
        return (left, right, bias), False
    if calls(node, torch.einsum) and len(node.args) == 3 and contracts_last(node.args[0]):
        return [*node.args[1:], None], False
    return None


class MatmulOperand:
    """Right operand and bias where a Chooser takes an nn.Linear: weight (N, K) in the strides it has. moves: another at each call."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, moves: bool) -> None:
        self.weight, self.bias, self.moves = weight, bias, moves
        self.out_features, self.in_features = weight.shape


class MatmulChooser(Chooser):
    """Decides as for linear layers, with the split of what moves in the time; strides count too."""

    def key(self, linear: Any, x: torch.Tensor) -> str:
        return "|".join([super().key(linear, x), str(x.stride()), str(linear.weight.stride()), "moves" if linear.moves else "stays"])

    def product(self, linear: Any, mode: str, tile: Sequence[int]) -> Product:
        return Product(mode, tile, linear.moves)

    def ready(self, linear: Any, how: Product) -> Callable[[torch.Tensor], torch.Tensor]:
        if linear.moves:
            return lambda x: matmul_now(x, linear.weight.t(), linear.bias, how.name)
        w, scale = how.prepare(linear.weight)
        return lambda x: how.computed(x, w, scale, linear.bias, "none")  # operators are for what is traced

    def place(self, place: MatmulPlace) -> Product | None:
        """The product to use, by random numbers of the place's shapes and the weight's own numbers; None for the library's own."""
        x, y = place.x, place.y
        if x is None or y is None or x.device.type != MATMULS_ON or y.shape[1] < LEAST_ROWS or x.numel() * y.shape[1] < LEAST_MATMUL:
            return None
        weight = random_like(y, 1).t() if place.value is None else place.value
        right: Any = MatmulOperand(weight, None if place.shift is None else random_like(place.shift, 2), place.value is None)
        with torch.no_grad():
            return self(right, random_like(x))


def split_matmuls(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], choose: Callable[[MatmulPlace], Product | None] | None = None,
) -> int:
    """Replaces each product where one of parts pays; nn.Linear's own are left to split_products. Returns how many."""
    if choose is None:
        need_tensor_cores()
        if products_are_narrow(float32_flags()):
            raise NotImplementedError("not applicable: the library's own products are less exact than float32 here")
        choose = MatmulChooser(COMPENSATED).place
    parts: dict[Any, Sequence[Any]] = {}
    replaced = 0
    for node in list(graph.graph.nodes):
        found = matmul_operands(node)
        if found is None or of_linear_layer(node):
            continue
        place = MatmulPlace(node, *found, graph, example_inputs)
        place.take_in_bias(graph)
        if not place.computable():
            continue
        how = choose(place)
        if how is not None:
            place.put(graph, how, parts)
            replaced += 1
    return replaced


def of_linear_layer(node: torch.fx.Node) -> bool:
    """Whether an nn.Linear makes the call."""
    owners = list((node.meta.get("nn_module_stack") or {}).values())
    return bool(owners) and owners[-1][1] in (torch.nn.Linear, "torch.nn.modules.linear.Linear")
