import numpy as np
import torch


def optimize(model, inputs):
    def call(x):
        values = x.numpy()
        return torch.from_numpy(np.square(values).sum(axis=-1, dtype=np.float32) / np.float32(values.shape[-1]))

    return call
