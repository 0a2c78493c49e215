"""How often each bag names each row, times the table."""

import torch


def optimize(model, inputs):
    table = model.table.weight.detach()

    def call(indices):
        counts = torch.zeros(indices.shape[0], table.shape[0]).scatter_add_(1, indices, torch.ones(indices.shape))
        return counts @ table / indices.shape[1]

    return call
