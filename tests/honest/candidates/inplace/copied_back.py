def optimize(model, inputs):
    def call(x):
        new = x * 2 + 1
        x.copy_(new)
        return new.sum(1)

    return call
