"""The largest of each block, then the largest block."""



def optimize(model, inputs):
    def call(x):
        blocks = x.view(x.shape[0], 8, -1)
        values, places = blocks.max(-1)
        best = values.argmax(-1, keepdim=True)
        return (best * blocks.shape[-1] + places.gather(1, best)).squeeze(1)

    return call
