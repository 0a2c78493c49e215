"""Chunks copied and computed in turn on one stream; with a second stream the next copy runs beside the computation."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARAMS = {"n": 2048 if DEVICE == "cuda" else 128, "chunks": 4}
HOST = [torch.randn(PARAMS["n"], PARAMS["n"]) for _ in range(PARAMS["chunks"])]
if DEVICE == "cuda":
    HOST = [chunk.pin_memory() for chunk in HOST]
    SIDE = torch.cuda.Stream()


def upload(chunk):
    return chunk.to(DEVICE, non_blocking=True, copy=True)  # <- here


def compute(x, w):
    return (x @ w @ w).sum()


def shows(w):
    return [compute(upload(chunk), w) for chunk in HOST]


def clean(w):
    if DEVICE == "cpu":
        return shows(w)
    main, results = torch.cuda.current_stream(), []
    for chunk in HOST:
        with torch.cuda.stream(SIDE):
            x = upload(chunk)
        main.wait_stream(SIDE)
        x.record_stream(main)
        results.append(compute(x, w))
    return results


VERSIONS = {"shows": shows, "clean": clean}


def get_inputs(n):
    return torch.randn(n, n, device=DEVICE) / n**0.5
