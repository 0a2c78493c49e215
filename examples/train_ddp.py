"""A data-parallel training run in which the last rank does extra work in each step, so that all others wait for it.

    python3 scripts/profile_kernel.py examples/train_ddp.py --ranks 2 -- --late-work 6

It needs nothing but torch: gloo on a CPU, NCCL where each rank has a GPU. torchrun starts it too:

    torchrun --nproc-per-node 2 examples/train_ddp.py --late-work 6
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train a small network on random data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--late-work", type=int, default=0, help="matrix products that the last rank alone does before each forward pass")
    arguments = parser.parse_args()

    rank, ranks, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")

    torch.manual_seed(rank)
    width = arguments.width
    model = DistributedDataParallel(nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(arguments.batch, width, device=device)
    extra = torch.randn(2 * width, 2 * width, device=device)
    for step in range(arguments.steps):
        if rank == ranks - 1:
            for _ in range(arguments.late_work):
                extra @ extra
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
