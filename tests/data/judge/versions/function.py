def softmax_of_rows(x):
    powers = (x - x.amax(-1, keepdim=True)).exp_()
    return powers.div_(powers.sum(-1, keepdim=True)).sum(0)
