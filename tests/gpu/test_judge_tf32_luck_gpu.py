"""Convolutions in TF32, as torch allows them by default, whose outputs are means over images: many weights, one judge's round each."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from judge_in_process import own_round, workload_of
from kernelwright.probe.judge_tf32 import tf32_weights

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from conv_block import ConvBlock, settle_statistics

pytestmark = pytest.mark.gpu
SEEDS = 150


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return nn.functional.cross_entropy(self.model(x), torch.arange(x.shape[0], device=x.device) % 10)


def block(seed):
    torch.manual_seed(seed)
    with torch.device("cuda"):
        model = ConvBlock(64)
        settle_statistics(model)
    return model.eval().requires_grad_(False)


def folded(model):
    """BatchNorm in the convolutions' weights: other weights, rounded to TF32 otherwise."""
    layers = [nn.utils.fuse_conv_bn_eval(one[0], one[1]) for one in model.features]

    def call(x):
        for layer in layers:
            x = layer(x).relu()
        return model.head(model.pool(x).flatten(1))

    return call


def narrow(model):
    def call(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(x).float()

    return call


def wrong(make_model, make_candidate):
    """Shares of the weights with which the candidate is wrong: with no more draws, and with them."""
    without = widened = 0
    for seed in range(SEEDS):
        model = make_model(seed)
        workload = workload_of(model, lambda: [torch.randn(4, 3, 32, 32, device="cuda")], device="cuda")
        plain, drawn = own_round(workload, make_candidate(model), seed)
        without, widened = without + (not plain[0].passed), widened + (not drawn[0].passed)
    return without / SEEDS, widened / SEEDS


@pytest.mark.parametrize("allowed", [True, False])
def test_the_layers_that_compute_in_tf32_are_seen(allowed, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    workload = workload_of(block(0), lambda: [torch.randn(4, 3, 32, 32, device="cuda")], device="cuda")
    names = tf32_weights(workload, workload.fresh_inputs(1), 1)
    print(f"TF32 allowed to cuDNN: {allowed}; in TF32: {', '.join(names) or 'none'}")
    assert {"features.1.0.weight", "features.2.0.weight"} <= set(names) if allowed else names == []
    assert "head.weight" not in names


def test_folded_batch_norms_are_right_with_nearly_all_weights():
    plain, drawn = wrong(block, folded)
    print(f"folded BatchNorm: wrong with {plain:.1%} of the weights by the reference's own error, {drawn:.1%} with more draws")
    assert drawn <= 1 / SEEDS


def test_a_loss_is_right_with_nearly_all_weights():
    def candidate(model):
        logits = folded(model.model)
        return lambda x: nn.functional.cross_entropy(logits(x), torch.arange(x.shape[0], device=x.device) % 10)

    plain, drawn = wrong(lambda seed: WithLoss(block(seed)).requires_grad_(False), candidate)
    print(f"a loss: wrong with {plain:.1%} of the weights by the reference's own error, {drawn:.1%} with more draws")
    assert drawn < 0.05


def test_bfloat16_stays_wrong():
    plain, drawn = wrong(block, narrow)
    print(f"bfloat16: wrong with {plain:.1%} of the weights by the reference's own error, {drawn:.1%} with more draws")
    assert drawn == plain == 1
