import torch


def optimize(model, inputs):
    return lambda indices: torch.nn.functional.embedding_bag(indices, model.table.weight, mode="mean")
