"""Halves are added until one column is left."""


def optimize(model, inputs):
    def call(x):
        total = x * x
        while total.shape[-1] > 1:
            half = total.shape[-1] // 2
            total = total[:, :half] + total[:, half:]
        return total.squeeze(-1) / x.shape[-1]

    return call
