"""The same steps, in place on its own difference."""


def optimize(model, inputs):
    weight, bias = model.weight.detach(), model.bias.detach()

    def call(x):
        centred = x - x.mean(-1, keepdim=True)
        scale = centred.square().mean(-1, keepdim=True).add_(1e-5).rsqrt_()
        return centred.mul_(scale).mul_(weight).add_(bias)

    return call
