def optimize(model, inputs):
    return lambda x, factor, how: x * factor if how["sign"] == "plus" else -(x * factor)
