import torch


class Lost(torch.nn.Module):
    def forward(self, x):
        return (x - x) / 0.0


def get_model_and_input():
    return Lost().eval(), torch.randn(40, 8)
