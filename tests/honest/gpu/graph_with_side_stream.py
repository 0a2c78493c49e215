"""A CUDA graph whose capture forks to a second stream and joins it."""

import torch


def optimize(model, inputs):
    static = inputs.clone()
    side = torch.cuda.Stream()
    halves = static.chunk(2)

    def both():
        now = torch.cuda.current_stream()
        side.wait_stream(now)
        with torch.cuda.stream(side):
            second = model(halves[1])
        first = model(halves[0])
        now.wait_stream(side)
        return torch.cat([first, second])

    with torch.no_grad():
        for _ in range(3):
            both()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = both()

    def call(x):
        static.copy_(x)
        graph.replay()
        return out.clone()

    return call
