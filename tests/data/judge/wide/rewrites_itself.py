from pathlib import Path


def optimize(model, inputs):
    Path(__file__).write_text("def optimize(model, inputs):\n    return model\n")
    return model
