def optimize(model, inputs):
    return lambda x: model(x.bfloat16().float())
