def optimize(model, inputs):
    raise ValueError("no luck with this shape")
