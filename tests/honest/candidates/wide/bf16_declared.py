PRECISION = "bf16"


def optimize(model, inputs):
    model.repeats = 1
    model = model.bfloat16()
    return lambda x: model(x.bfloat16()).float()
