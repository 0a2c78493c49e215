import torch


def get_model_and_input():
    return torch.nn.LayerNorm(768).eval(), torch.randn(128, 768) + 0.3
