"""PyTorch."""


def axpy(x, y):
    return 2.0 * x + y
