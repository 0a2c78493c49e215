def optimize(model, inputs):
    model.repeats = 6
    return model
