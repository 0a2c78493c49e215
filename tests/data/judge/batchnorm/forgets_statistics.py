from torch.nn import functional


def optimize(model, inputs):
    def call(x):
        normed = functional.batch_norm(model.layer(x), None, None, model.norm.weight, model.norm.bias, training=True, eps=model.norm.eps)
        return normed.tanh().square().mean()

    return call
