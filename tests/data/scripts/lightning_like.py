"""A Lightning-like loop: a Trainer that calls hooks, tears down on any exception, and saves in a `finally`."""

import argparse
import atexit
import hashlib
import random
from pathlib import Path

import helpers_beside
import torch
from torch import nn


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch):
        return self.net(batch).pow(2).mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=helpers_beside.RATE)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)


class Trainer:
    def __init__(self, steps, log):
        self.steps, self.log = steps, log

    def fit(self, module, batches):
        optimizer, schedule = module.configure_optimizers()
        try:
            for step in range(self.steps):
                batch = batches[step % len(batches)]

                def closure(step=step, batch=batch):
                    optimizer.zero_grad()
                    loss = module.training_step(batch)
                    loss.backward()
                    print(f"step {step} loss {loss.item():.9f} {random.random()}")
                    return loss

                optimizer.step(closure)
                schedule.step()
                self.log.write(f"{step}\n")
        except BaseException as error:
            self.log.write(f"teardown after {type(error).__mro__[-3].__name__}\n")
            raise
        finally:
            torch.save(module.state_dict(), "last.pt")
            self.log.write(hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    torch.manual_seed(3)
    random.seed(3)
    atexit.register(Path("atexit.txt").write_text, "bye")
    with open("log.txt", "w") as log:
        Trainer(args.steps, log).fit(Module(), [torch.randn(8, 16) for _ in range(3)])
    print("fit is over")


if __name__ == "__main__":
    main()
