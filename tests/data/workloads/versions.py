"""Form 3: a kernel with versions and its own figures of work."""

import torch

PARAMS = {"b": 2, "s": 3, "dtype": "float32"}


def v1(x, y):
    return (x.unsqueeze(-1) * y.unsqueeze(-2)).sum(0)


def v2(x, y):
    return torch.einsum("bi,bj->ij", x, y)


VERSIONS = {"v1": v1, "v2": v2}


def get_inputs(b, s, dtype):
    kind = getattr(torch, dtype)
    return torch.randn(b, s, dtype=kind), torch.randn(b, s, dtype=kind)


def flops(b, s):
    return 2 * b * s * s


def bytes_moved(b, s):
    return 4 * (2 * b * s + s * s)


def reference(x, y):
    return v1(x.double(), y.double())
