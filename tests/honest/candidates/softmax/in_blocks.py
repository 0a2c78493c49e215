"""The largest element and the sum block by block, as an online softmax keeps them."""

import torch


def optimize(model, inputs):
    def call(x):
        largest = torch.full_like(x[:, :1], float("-inf"))
        total = torch.zeros_like(x[:, :1])
        for block in x.split(64, dim=1):
            now = torch.maximum(largest, block.max(1, keepdim=True).values)
            total = total * (largest - now).exp() + (block - now).exp().sum(1, keepdim=True)
            largest = now
        return (x - largest).exp() / total

    return call
