"""NumPy on the tensors' own memory."""

import numpy as np
import torch


def optimize(model, inputs):
    weight, bias = model.layer.weight.detach().numpy().T.copy(), model.layer.bias.detach().numpy()
    return lambda x: torch.from_numpy(np.tanh(x.numpy() @ weight + bias))
