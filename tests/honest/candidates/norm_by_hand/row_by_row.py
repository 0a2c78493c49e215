import torch


def optimize(model, inputs):
    return lambda x: torch.cat([model(rows) for rows in x.split(4)])
