"""Typical workloads with honest candidates: fused, reordered, blocked, in another layout, or in a declared lower precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Honest:
    """A workload and other programs for the same result."""

    model: Callable[..., Any]
    inputs: Callable[[], Any]
    candidates: dict[str, Callable[..., Any]]
    declared: dict[str, Callable[..., Any]]
    """Candidates that declare bf16."""
    training: bool = False


def blocked_sum(x: torch.Tensor, dim: int = -1, blocks: int = 8) -> torch.Tensor:
    total = torch.zeros_like(x.select(dim, 0))
    for part in x.chunk(blocks, dim):
        total = total + part.sum(dim)
    return total


def split_matmul(x: torch.Tensor, weight: torch.Tensor, parts: int = 4) -> torch.Tensor:
    """x @ weight.T, the inner dimension in parts."""
    return sum((a @ b.transpose(-1, -2) for a, b in zip(x.chunk(parts, -1), weight.chunk(parts, -1), strict=True)),
               torch.zeros(*x.shape[:-1], weight.shape[-2], dtype=x.dtype))


def matmul() -> Honest:
    layer = nn.Linear(256, 96).eval()
    low = copy.deepcopy(layer).bfloat16()
    return Honest(layer, lambda: [torch.randn(64, 256)], {
        "split_k": lambda x: split_matmul(x, layer.weight) + layer.bias,
        "transposed": lambda x: (layer.weight @ x.T).T + layer.bias,
        "bias_first": lambda x: torch.addmm(layer.bias, x, layer.weight.T),
    }, {"bf16": lambda x: low(x.bfloat16()).float(), "rounded_operands": lambda x: functional.linear(
        x.bfloat16().float(), layer.weight.bfloat16().float(), layer.bias)})


def layernorm() -> Honest:
    layer = nn.LayerNorm(512).eval()

    def one_pass(x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(variance + layer.eps) * layer.weight + layer.bias

    def blocked(x: torch.Tensor) -> torch.Tensor:
        mean = (blocked_sum(x) / x.shape[-1]).unsqueeze(-1)
        centred = x - mean
        return centred / torch.sqrt(blocked_sum(centred * centred).unsqueeze(-1) / x.shape[-1] + layer.eps) * layer.weight + layer.bias

    return Honest(layer, lambda: [torch.randn(64, 512) + 0.3], {"one_pass": one_pass, "blocked": blocked},
                  {"rounded": lambda x: layer(x.bfloat16().float()).bfloat16().float()})


def softmax() -> Honest:
    def online(x: torch.Tensor) -> torch.Tensor:
        top = torch.full_like(x[..., :1], -torch.inf)
        total = torch.zeros_like(top)
        for part in x.chunk(8, -1):
            new = torch.maximum(top, part.amax(-1, keepdim=True))
            total = total * torch.exp(top - new) + torch.exp(part - new).sum(-1, keepdim=True)
            top = new
        return torch.exp(x - top) / total

    def base_two(x: torch.Tensor) -> torch.Tensor:
        scaled = x * 1.4426950408889634
        powers = torch.exp2(scaled - scaled.amax(-1, keepdim=True))
        return powers / powers.sum(-1, keepdim=True)

    return Honest(lambda x: torch.softmax(x, -1), lambda: [torch.randn(64, 384)], {"online": online, "base_two": base_two},
                  {"rounded": lambda x: torch.softmax(x.bfloat16().float(), -1)})


def conv_bn() -> Honest:
    conv, norm = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        norm.weight.uniform_(0.5, 2)
    model = nn.Sequential(conv, norm, nn.ReLU()).eval()
    fused = nn.utils.fuse_conv_bn_eval(copy.deepcopy(conv).eval(), copy.deepcopy(norm).eval())
    low = copy.deepcopy(model).bfloat16()
    unfolded = fused.weight.reshape(16, -1)

    def as_matmul(x: torch.Tensor) -> torch.Tensor:
        columns = functional.unfold(x, 3, padding=1)
        return torch.relu((unfolded @ columns).reshape(x.shape[0], 16, *x.shape[2:]) + fused.bias[:, None, None])

    return Honest(model, lambda: [torch.randn(2, 8, 14, 14)], {
        "folded": lambda x: torch.relu(fused(x)), "as_matmul": as_matmul,
        "channels_last": lambda x: torch.relu(fused(x.to(memory_format=torch.channels_last)))},
        {"bf16": lambda x: low(x.bfloat16()).float()})


def cross_entropy() -> Honest:
    def by_hand(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        top = logits.amax(-1, keepdim=True)
        sums = torch.log(blocked_sum(torch.exp(logits - top))) + top[:, 0]
        return (sums - logits.gather(1, target[:, None])[:, 0]).mean()

    return Honest(functional.cross_entropy, lambda: [torch.randn(128, 200), torch.randint(0, 200, (128,))],
                  {"by_hand": by_hand, "logsumexp": lambda x, t: (torch.logsumexp(x, -1) - x[torch.arange(len(x)), t]).mean()},
                  {"rounded": lambda x, t: functional.cross_entropy(x.bfloat16().float(), t)})


def gelu_mlp() -> Honest:
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)).eval()
    low = copy.deepcopy(model).bfloat16()

    def by_hand(x: torch.Tensor) -> torch.Tensor:
        hidden = split_matmul(x, model[0].weight) + model[0].bias
        hidden = hidden * 0.5 * (1 + torch.erf(hidden * 0.7071067811865476))
        return split_matmul(hidden, model[2].weight) + model[2].bias

    return Honest(model, lambda: [torch.randn(64, 128)], {"by_hand": by_hand}, {"bf16": lambda x: low(x.bfloat16()).float()})


def attention() -> Honest:
    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v

    def scaled_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        powers = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        powers = torch.exp(powers - powers.amax(-1, keepdim=True))
        return (powers @ v) / powers.sum(-1, keepdim=True)

    def low(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q.bfloat16(), k.bfloat16(), v.bfloat16()).float()

    return Honest(plain, lambda: [torch.randn(2, 4, 48, 32) for _ in range(3)],
                  {"sdpa": functional.scaled_dot_product_attention, "scaled_first": scaled_first}, {"bf16": low})


def cumsum() -> Honest:
    def blocked(x: torch.Tensor) -> torch.Tensor:
        parts = x.reshape(x.shape[0], 16, -1)
        inner = parts.cumsum(-1)
        before = torch.cat([torch.zeros_like(inner[:, :1, -1]), inner[:, :-1, -1].cumsum(1)], 1)
        return (inner + before[..., None]).reshape(x.shape)

    return Honest(lambda x: torch.cumsum(x, -1), lambda: [torch.randn(32, 1024)], {"blocked": blocked}, {})


def argmax() -> Honest:
    layer = nn.Linear(64, 200).eval()

    def last_first(x: torch.Tensor) -> torch.Tensor:
        scores = layer(x)
        return scores.shape[-1] - 1 - scores.flip(-1).argmax(-1)

    return Honest(lambda x: layer(x).argmax(-1), lambda: [torch.randn(600, 64)],
                  {"split_k": lambda x: (split_matmul(x, layer.weight) + layer.bias).argmax(-1), "last_first": last_first}, {})


def topk() -> Honest:
    def sorted_first(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.sort(x, -1, descending=True)
        return values[:, :8].contiguous(), places[:, :8].contiguous()

    return Honest(lambda x: tuple(torch.topk(x, 8, -1)), lambda: [torch.randn(400, 128)], {"sorted": sorted_first}, {})


def uniform() -> Honest:
    """Inputs from 0 to 1, as torch.rand gives them."""
    return Honest(lambda x: (functional.relu(x).pow(2) / (1 + x.abs())).sum(1), lambda: [torch.rand(64, 256)],
                  {"by_hand": lambda x: blocked_sum(torch.where(x > 0, x, 0) ** 2 * (1 / (1 + x.abs())))}, {})


def probabilities() -> Honest:
    def by_hand(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        floor = torch.tensor(-100.0)
        return -(q * torch.maximum(p.log(), floor) + (1 - q) * torch.maximum((1 - p).log(), floor)).mean()

    return Honest(functional.binary_cross_entropy, lambda: [torch.rand(64, 64), torch.rand(64, 64)], {"by_hand": by_hand}, {})


def rmsnorm_half() -> Honest:
    def reference(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def other(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide / torch.sqrt(blocked_sum(wide * wide).unsqueeze(-1) / x.shape[-1] + 1e-6)).to(x.dtype)

    return Honest(reference, lambda: [torch.randn(64, 256).half()], {"blocked": other}, {})


def bf16_mlp() -> Honest:
    model = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64)).bfloat16().eval()

    def wide_inside(x: torch.Tensor) -> torch.Tensor:
        hidden = functional.silu(functional.linear(x.float(), model[0].weight.float(), model[0].bias.float()))
        return functional.linear(hidden, model[2].weight.float(), model[2].bias.float()).bfloat16()

    return Honest(model, lambda: [torch.randn(64, 64).bfloat16()], {"wide_inside": wide_inside}, {})


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(self.second(torch.relu(self.norm(self.first(x)))), target)


def training_step() -> Honest:
    model = Step().train()

    def by_hand(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        hidden = split_matmul(x, model.first.weight) + model.first.bias
        mean = hidden.mean(-1, keepdim=True)
        centred = hidden - mean
        hidden = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + model.norm.eps) * model.norm.weight + model.norm.bias
        out = split_matmul(torch.relu(hidden), model.second.weight) + model.second.bias
        return (out - target).square().mean()

    return Honest(model, lambda: [torch.randn(64, 32), torch.randn(64, 8)], {"by_hand": by_hand}, {}, training=True)


ALL: dict[str, Callable[[], Honest]] = {make.__name__: make for make in (
    matmul, layernorm, softmax, conv_bn, cross_entropy, gelu_mlp, attention, cumsum, argmax, topk, uniform, probabilities, rmsnorm_half,
    bf16_mlp, training_step)}
