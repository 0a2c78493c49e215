def optimize(model, inputs):
    def call(x):
        out = model(x)
        x.mul_(0.5)
        return out

    return call
