def optimize(model, inputs):
    def call(x):
        powers = (x - x.max(-1, keepdim=True).values).exp()
        return powers / powers.sum(-1, keepdim=True)

    return call
