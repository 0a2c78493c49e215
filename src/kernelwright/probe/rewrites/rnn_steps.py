"""LSTMs and GRUs as one matrix product and one fused cell kernel a time step, stacked layers (or both directions) beside each other.

The library's own RNN kernels lose to this where a step is small: the products of layer n + 1 run while layer n is further on in the
sequence. Hundreds of small launches: only worth it under a CUDA graph, which replays them as one.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch


def rnn_steps(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """A copy of the model (weights shared) whose LSTMs and GRUs compute step by step; packed sequences stay with the library."""
    kinds = (torch.nn.LSTM, torch.nn.GRU)
    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    found = [module for module in modules if type(module) in kinds and not module.training and not getattr(module, "proj_size", 0)
             and not module._forward_hooks and not module._forward_pre_hooks]
    if not found:
        raise NotImplementedError("not applicable: the model has no LSTM or GRU in eval mode (without a projection of its own)")

    def cell(gates: Any, hidden: Any, state: tuple[Any, ...], biases: list[Any]) -> tuple[Any, ...]:
        """One step's next state, (h, c) or (h,). gates: x W_ih^T, hidden: h W_hh^T, both (batch, 4 or 3 times the width)."""
        long_term = len(state) == 2
        if gates.is_cuda:
            fused = torch.ops.aten._thnn_fused_lstm_cell if long_term else torch.ops.aten._thnn_fused_gru_cell
            return fused(gates, hidden, state[-1], *biases)[: len(state)]  # type: ignore[no-any-return]
        if biases:
            gates, hidden = gates + biases[0], hidden + biases[1]
        if long_term:
            i, f, g, o = (gates + hidden).chunk(4, 1)
            c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c
        (reset, update, new), (h_reset, h_update, h_new) = gates.chunk(3, 1), hidden.chunk(3, 1)
        blend, fresh = (update + h_update).sigmoid(), (new + (reset + h_reset).sigmoid() * h_new).tanh()
        return ((state[0] - fresh) * blend + fresh,)

    def steps(weights: list[Any], xs: Any, state: tuple[Any, ...], backwards: bool = False) -> tuple[Any, tuple[Any, ...]]:
        """Outputs (time, batch, width) and the last state of one layer in one direction over xs: (time, batch, features)."""
        into, back, *biases = weights
        gates = xs @ into.t()  # of all steps in one product
        outputs = [xs] * len(xs)
        for t in range(len(xs) - 1, -1, -1) if backwards else range(len(xs)):
            state = cell(gates[t], state[0] @ back.t(), state, biases)
            outputs[t] = state[0]
        return torch.stack(outputs), state

    def forked(main: Any, count: int) -> list[Any]:
        """The main stream and count - 1 others that go on from where it is. Without a GPU: no streams."""
        if main is None:
            return [None] * count
        others = [torch.cuda.Stream() for _ in range(count - 1)]
        for other in others:
            other.wait_stream(main)
        return [main, *others]

    def stacked(layers: list[list[Any]], xs: Any, states: list[Any], main: Any) -> Any:
        """Layers in one direction: each on a stream of its own, an eighth of the sequence behind the one below."""
        pieces, streams = list(xs.chunk(8 if len(layers) > 1 else 1)), forked(main, len(layers))
        ready: list[Any] = []
        alive = [pieces]  # memory that another stream still reads must not be handed out again before all have met
        for index, stream in enumerate(streams):
            outputs, done = [], []
            with torch.cuda.stream(stream):
                for piece, event in itertools.zip_longest(pieces, ready):
                    if event is not None:
                        stream.wait_event(event)
                    output, states[index] = steps(layers[index], piece, states[index])
                    outputs.append(output)
                    done += [stream.record_event()] if stream is not None else []
            alive.append(outputs)
            pieces, ready = outputs, done
        for stream in streams[1:] if main is not None else ():
            main.wait_stream(stream)
        return torch.cat(pieces)

    def both_ways(layers: list[list[Any]], xs: Any, states: list[Any], main: Any) -> Any:
        """Layers in two directions, which run beside each other; a layer waits for both of the one below."""
        for index in range(0, len(layers), 2):
            halves, streams = [], forked(main, 2)
            for way, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    half, states[index + way] = steps(layers[index + way], xs, states[index + way], backwards=way == 1)
                    halves.append(half)
            if main is not None:
                main.wait_stream(streams[1])
            xs = torch.cat(halves, 2)
        return xs

    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        if not isinstance(input, torch.Tensor) or input.dim() != 3 or 0 in input.shape:
            return super(type(self), self).forward(input, hx)
        xs, long_term = input.transpose(0, 1) if self.batch_first else input, isinstance(self, torch.nn.LSTM)
        if hx is None:
            zeros = xs.new_zeros(len(self.all_weights), xs.shape[1], self.hidden_size)
            hx = (zeros, zeros) if long_term else zeros
        states = [tuple(state) for state in (zip(*hx, strict=True) if long_term else ((h,) for h in hx))]
        main = torch.cuda.current_stream() if xs.is_cuda else None
        output = (both_ways if self.bidirectional else stacked)(self.all_weights, xs, states, main)
        last = tuple(torch.stack(parts) for parts in zip(*states, strict=True))
        return output.transpose(0, 1) if self.batch_first else output, last if long_term else last[0]

    shared: dict[int, Any] = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}  # type: ignore[attr-defined]
    for module in found:
        twin = copy.copy(module)  # the same weights and settings, another forward
        twin.__class__ = type(f"{type(module).__name__}Steps", (type(module),), {"forward": forward})
        shared[id(module)] = twin
    return copy.deepcopy(model, shared)
