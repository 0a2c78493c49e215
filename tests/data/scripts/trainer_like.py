"""An HF-Trainer-like loop: a wrapped optimizer, gradient accumulation, a scaler, callbacks, workers, a compiled model."""

import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AcceleratedOptimizer(torch.optim.Optimizer):
    """As accelerate does: an Optimizer that holds another one and was never initialised as one."""

    def __init__(self, inner, scaler):
        self.optimizer, self.scaler = inner, scaler

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Callback:
    def on_step_end(self, trainer):
        print("step", trainer.step, f"{trainer.loss:.9f}", random.random(), flush=True)


class Trainer:
    def __init__(self, model, loader, callbacks):
        self.model, self.loader, self.callbacks = model, loader, callbacks
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        self.optimizer = AcceleratedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), self.scaler)
        self.step = 0

    def train(self, steps, accumulate=2):
        micro = 0
        forward = torch.compile(self.model, backend="eager")
        while self.step < steps:
            for x, y in self.loader:
                with torch.autocast("cpu", torch.bfloat16):
                    loss = nn.functional.mse_loss(forward(x).float(), y) / accumulate
                self.scaler.scale(loss).backward()
                micro += 1
                if micro % accumulate:
                    continue
                self.loss = loss.item()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.step += 1
                for callback in self.callbacks:
                    callback.on_step_end(self)
                if self.step % 3 == 0:
                    torch.save(self.model.state_dict(), f"checkpoint-{self.step}.pt")
                if self.step == steps:
                    return


if __name__ == "__main__":
    torch.manual_seed(1)
    random.seed(1)
    data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    workers = {"num_workers": 1, "multiprocessing_context": "spawn"} if "--workers" in sys.argv else {}
    Trainer(model, DataLoader(data, 4, shuffle=True, **workers), [Callback()]).train(12)
    torch.save(model.state_dict(), "final.pt")
    print("trained to the end")
