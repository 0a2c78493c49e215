"""LSTM layers in one kernel whose programs keep their weights on the chip for all steps, the layers side by side.

The library launches kernels for each step, which read the weights anew. Here a program owns some units of a layer, keeps their weights, and
tells the others each step's states through memory. Operands in float16: 11 bits, as many as TF32 has, which the library's own recurrent
layers use unless torch.backends.cudnn.allow_tf32 is off. Each layer is measured on this call's inputs, and stays as it is where that is
not faster, or errs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .casts import WORTH, plain_layers, sharing_twin, with_layers
from .float32_flags import float32_flags, products_as, recurrent_layers_are_tf32, under_flags
from .lstm_kernels import lstm_kernel, triton
from .measuring import ROUNDING_ROOM, errors, seconds

LARGEST_BATCH = 64
"""Sequences: a program computes all of them, a power of two at a time."""
LEAST_BLOCK = 16
"""Rows and columns that tensor cores take."""
TYPES_GIVEN = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_COUNT = 2**31
"""Numbers that a kernel counts in 32 bits."""


class PersistentLstm(torch.nn.Module):  # type: ignore[misc]
    """nn.LSTM, the same results; given states, packed sequences, other dtypes, autocast and calls that want gradients go to the library."""

    def __init__(self, layer: torch.nn.LSTM) -> None:
        super().__init__()
        self.dtype = torch.float32
        """Of inputs and results, which are not narrowed (casts.narrow_is_close)."""
        self.hidden_size, self.batch_first, self.num_layers = layer.hidden_size, layer.batch_first, layer.num_layers
        self.tile: list[int] = []
        """Units and warps of a program; without them the library computes."""
        self.most = LARGEST_BATCH
        """Sequences for which the tile has room on the GPU."""
        for name, parameter in layer.named_parameters(recurse=False):
            self.register_parameter(name, parameter)  # where the kernel computes, torch.compile meets nothing of the library's layer
        self.library, self.training = layer, layer.training

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:  # what the model asks its layer for: hidden_size, a weight
            return getattr(super().__getattr__("library"), name)

    def lay_out(self, tile: Sequence[int]) -> None:
        """The weights in half precision as the kernel reads them: the four gates of a unit side by side, K columns, a power of two."""
        layer, size = self.library, self.library.hidden_size
        deep, columns = block_of(size), -(-size // tile[0]) * tile[0] * 4

        def beside(kind: str, place: int) -> torch.Tensor:
            rows = getattr(layer, f"{kind}_l{place}").detach().view(4, size, -1).transpose(0, 1).reshape(4 * size, -1)
            return F.pad(rows, (0, 0, 0, columns - 4 * size))

        places = range(layer.num_layers)
        own = torch.stack([beside("weight_hh", place) for place in places])
        below = torch.stack([torch.zeros_like(own[0]) if place == 0 else beside("weight_ih", place) for place in places])
        shift = torch.stack([beside("bias_ih", place) + beside("bias_hh", place) for place in places])[..., 0] if layer.bias \
            else own.new_zeros(own.shape[:2])
        for name, value in (("own", F.pad(own, (0, deep - size))), ("below", F.pad(below, (0, deep - size)))):
            self.register_buffer(name, value.to(torch.float16).contiguous(), persistent=False)
        self.register_buffer("shift", shift.contiguous(), persistent=False)
        self.tile = list(tile)

    def takes(self, x: Any, hx: Any) -> bool:
        """Whether the kernel can compute this call."""
        weight = self.weight_ih_l0
        if hx is not None or not isinstance(x, torch.Tensor) or x.dim() != 3 or x.dtype != weight.dtype or x.device != weight.device:
            return False  # a packed sequence is no tensor
        if x.dtype not in TYPES_GIVEN or (self.tile and self.own.dtype != torch.float16):
            return False  # cast since it was laid out, all of it
        wants_gradient = torch.is_grad_enabled() and (x.requires_grad or any(one.requires_grad for one in self._parameters.values()))
        batch = x.shape[0 if self.batch_first else 1]
        fits = 0 < batch <= self.most and 0 < x.shape[0] * x.shape[1] * 4 * self.hidden_size * self.num_layers < LARGEST_COUNT
        drops = self.training and self.library.dropout > 0
        return x.is_cuda and fits and not wants_gradient and not drops and not torch.is_autocast_enabled("cuda")

    def forward(self, input: torch.Tensor, hx: Any = None) -> Any:  # nn.LSTM's name for it
        if not self.tile or not self.takes(input, hx):
            return self.library(input, hx)
        arguments = (input, self.weight_ih_l0, self.own, self.below, self.shift, self.hidden_size, self.batch_first, self.tile)
        watched = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or type(input) is not torch.Tensor
        out, last_h, last_c = (torch.ops.persistent_lstm.run if watched else run_lstm)(*arguments)
        return out, (last_h, last_c)


def run_lstm(
    x: torch.Tensor, weight: torch.Tensor, own: torch.Tensor, below: torch.Tensor, shift: torch.Tensor, size: int, batch_first: bool,
    tile: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x (B, T, D), or (T, B, D) without batch_first, through all layers from states of zero: (states of the last layer, each layer's last
    state, each layer's last cell). weight (4 size, D): the first layer's of x; own, below, shift: see lay_out. tile: units, warps."""
    flags = float32_flags()
    with under_flags(products_as(flags, recurrent_layers_are_tf32(flags))):  # as cuDNN computes this product
        projected = F.linear(x, weight)
    with torch.cuda.device_of(x):  # Triton launches on the current one
        found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = lstm_steps(projected, own, below, shift, size, batch_first, tile)
    return found


@torch.compiler.disable  # type: ignore[untyped-decorator]
def lstm_steps(
    projected: torch.Tensor, own: torch.Tensor, below: torch.Tensor, shift: torch.Tensor, size: int, batch_first: bool,
    tile: Sequence[int], together: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same from x times the first layer's weights on. together: all steps in one launch, else one each."""
    layers, (units, warps) = len(own), tile
    batch, steps = projected.shape[:2] if batch_first else projected.shape[1::-1]
    out = results_like(projected, size, batch_first)
    strides = [(tensor.stride(1), tensor.stride(0)) if batch_first else (tensor.stride(0), tensor.stride(1)) for tensor in (projected, out)]
    states = projected.new_empty((layers, steps, batch, size), dtype=own.dtype)
    last_h, last_c = (projected.new_empty((layers, batch, size), dtype=torch.float32) for _ in range(2))
    arrived = torch.zeros((layers, steps), dtype=torch.int32, device=projected.device)
    kernel: Any = lstm_kernel
    for first, last in [(0, steps)] if together else [(step, step + 1) for step in range(steps)]:
        kernel[(layers * -(-size // units),)](
            projected, own, below, shift, states, out, last_h, last_c, arrived, batch, steps, first, last, *strides[0], *strides[1],
            LAYERS=layers, H=size, K=own.shape[2], UNITS=units, BB=block_of(batch), WAITS=together, num_warps=warps, num_stages=1,
            **({"launch_cooperative_grid": True} if together else {}))
    return out, last_h.to(projected.dtype), last_c.to(projected.dtype)


def lstm_results(
    x: torch.Tensor, weight: torch.Tensor, own: torch.Tensor, below: torch.Tensor, shift: torch.Tensor, size: int, batch_first: bool,
    tile: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the results look like."""
    last = (len(own), x.shape[0 if batch_first else 1], size)
    return results_like(x, size, batch_first), x.new_empty(last), x.new_empty(last)


def results_like(x: torch.Tensor, size: int, batch_first: bool) -> torch.Tensor:
    """Memory for the last layer's states, laid out as cuDNN lays them out: step by step."""
    first, second = x.shape[:2]
    return x.new_empty((second, first, size)).transpose(0, 1) if batch_first else x.new_empty((first, second, size))


torch.library.custom_op(
    "persistent_lstm::run", run_lstm, mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor own, Tensor below, Tensor shift, int size, bool batch_first, int[] tile) "
           "-> (Tensor, Tensor, Tensor)").register_fake(lstm_results)


def block_of(count: int) -> int:
    """The power of two that a tile has for so many."""
    return max(LEAST_BLOCK, 1 << (count - 1).bit_length())


def lstm_tiles(layer: torch.nn.LSTM, batch: int, processors: int, shared_bytes: int) -> list[list[int]]:
    """[units a program, warps] worth trying: the fewest units with which all programs fit on the GPU at once, and twice as many; those
    whose weights, and the states that come in, fit into so many bytes of shared memory."""
    units = next((units for units in (4, 8, 16, 32) if layer.num_layers * -(-layer.hidden_size // units) <= processors), None)
    kinds, deep = min(layer.num_layers, 2), block_of(layer.hidden_size)
    found = [] if units is None else [[units, 4], [2 * units, 8]]
    return [tile for tile in found if 2 * deep * (kinds * 4 * tile[0] + block_of(batch)) <= shared_bytes]


def lstm_is_faster(layer: torch.nn.LSTM, own: PersistentLstm, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether its fastest tile, which is chosen, is faster than the library and as exact, on this call's input."""
    x, hx = (*args, *kwargs.values(), None)[:2]
    if not own.takes(x, hx):
        return False
    exact = PlainLstm(layer)(x.double())
    most, found = errors(layer(x)[0], exact), []
    device, batch = torch.cuda.get_device_properties(x.device), x.shape[0 if layer.batch_first else 1]
    own.most = min(own.most, block_of(batch))
    shared_bytes = getattr(device, "shared_memory_per_block_optin", LARGEST_COUNT)  # an older torch does not know: Triton says it
    for tile in lstm_tiles(layer, batch, device.multi_processor_count, shared_bytes):
        own.lay_out(tile)
        try:
            as_exact = all(error <= room * limit for error, room, limit in zip(errors(own(x)[0], exact), ROUNDING_ROOM, most, strict=True))
            found += [(seconds(lambda: own(x)), tile)] if as_exact else []
        except (RuntimeError, KeyError, TypeError, triton.errors.TritonError):  # no room for this tile, or an older Triton
            continue
    if not found:
        return False
    taken_s, tile = min(found)
    own.lay_out(tile)
    return bool(taken_s * WORTH < seconds(lambda: layer(x)))


class PlainLstm:
    """A layer's results in float64, by the library."""

    def __init__(self, layer: torch.nn.LSTM) -> None:
        self.wide = torch.nn.LSTM(layer.input_size, layer.hidden_size, layer.num_layers, layer.bias, layer.batch_first,
                                  device=layer.weight_ih_l0.device, dtype=torch.float64)
        self.wide.load_state_dict(layer.state_dict())

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.wide(x)[0]
        return out.detach()


def persistent_lstm(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy of the model (weights shared) whose LSTM layers run in one kernel each where that pays."""
    if triton is None or not torch.cuda.is_available() or torch.version.hip is not None or torch.cuda.get_device_capability() < (8, 0):
        raise NotImplementedError("not applicable: needs Triton and an NVIDIA GPU of compute capability 8.0")
    twin = sharing_twin(model)
    layers = [layer for layer in plain_layers(twin, {torch.nn.LSTM}) if not layer.bidirectional and not layer.proj_size]
    with torch.no_grad():
        found = with_layers(twin, args, kwargs, layers, PersistentLstm, lstm_is_faster)
    if found is None:
        raise NotImplementedError("not applicable: no LSTM layer is faster and as exact in a kernel of its own")
    return found
