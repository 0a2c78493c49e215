def optimize(model, inputs):
    return lambda x: x * float("nan")
