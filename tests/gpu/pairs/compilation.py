"""A compiled function that meets another static shape in every call, so each call compiles; and one that doesn't."""

import itertools

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARAMS = {"n": 4096 if DEVICE == "cuda" else 512}
for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit", "accumulated_cache_size_limit"):
    if hasattr(torch._dynamo.config, name):
        setattr(torch._dynamo.config, name, 100_000)
LENGTHS = itertools.count(16)


@torch.compile(dynamic=False, backend="aot_eager")
def compiled(x):
    return torch.relu(x * 2.0 + 1.0)


def another_shape(x):
    return compiled(x[: next(LENGTHS)])  # <- here


def shows(x):
    return another_shape(x)


def clean(x):
    return compiled(x)


VERSIONS = {"shows": shows, "clean": clean}


def get_inputs(n):
    return torch.randn(n, n, device=DEVICE)
