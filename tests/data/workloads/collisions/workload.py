"""Form 1 beside modules that are called like the probe's own."""

import event
import failures
import loaders
import run
import timers
import torch
import tree

NAMES = [module.NAME for module in (event, failures, loaders, run, timers, tree)]


def get_model_and_input():
    assert all(name.startswith("the user's") for name in NAMES)
    return torch.nn.ReLU(), torch.randn(4)
