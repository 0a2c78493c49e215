def optimize(model, inputs):
    return lambda x: x.view(x.shape[0], 64, -1).square().sum(1).sum(-1) / x.shape[-1]
