"""Sums with a correction for what rounding lost."""

import torch


def optimize(model, inputs):
    def call(x):
        squares = (x * x).view(x.shape[0], 64, -1)
        total = torch.zeros_like(squares[:, 0])
        lost = torch.zeros_like(total)
        for index in range(64):
            add = squares[:, index] - lost
            now = total + add
            lost = (now - total) - add
            total = now
        return total.sum(-1) / x.shape[-1]

    return call
