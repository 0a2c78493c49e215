"""A CUDA graph: inputs are copied in, the output out."""

import torch


def optimize(model, inputs):
    static = inputs.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = model(static)

    def call(x):
        static.copy_(x)
        graph.replay()
        return out.clone()

    return call
