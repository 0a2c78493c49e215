from versions import v1


def candidate(x):
    out = v1(x)
    out[17] *= 1.001
    return out
