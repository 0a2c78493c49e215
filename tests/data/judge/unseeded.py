"""Weights from the operating system's entropy, inputs that never change."""

import random

import torch
from torch import nn


def get_model_and_input():
    layer = nn.Linear(16, 16)
    torch.nn.init.constant_(layer.weight, random.SystemRandom().random())
    return layer.eval(), torch.ones(8, 16)
