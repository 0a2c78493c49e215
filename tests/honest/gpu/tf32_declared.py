import torch

PRECISION = "tf32"
torch.backends.cuda.matmul.allow_tf32 = True


def optimize(model, inputs):
    return model
