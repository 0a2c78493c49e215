"""Version "triton" of the file under judgement, as a candidate in the place of the version that --version names."""


def optimize(model, inputs):
    return model.__globals__["VERSIONS"]["triton"]
