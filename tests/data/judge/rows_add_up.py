"""A problem without evidence: every row of a softmax adds up to one."""

import torch


class RowsAddUp(torch.nn.Module):
    def forward(self, x):
        return x.softmax(-1).sum(-1)


def get_model_and_input():
    return RowsAddUp().eval(), torch.randn(128, 96)
