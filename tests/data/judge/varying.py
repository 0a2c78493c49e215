"""Rows and a plain number follow the seed; an honest candidate must get the same ones."""

import random

import torch


class Scaled(torch.nn.Module):
    def forward(self, x, factor, how):
        return x * factor if how["sign"] == "plus" else x * -factor


def get_model_and_input():
    signs = {"sign": random.choice(["plus", "minus"])}
    return Scaled().eval(), (torch.randn(random.randrange(200, 300), 64), random.random(), signs)
