"""Runs many kinds of training loops under the probe's step counting; prints what each one counted. argv: the probe's folder."""

import importlib
import json
import sys

sys.path.insert(0, sys.argv[1])
start = importlib.import_module("start")
start.load_package(sys.argv[1])
steps_module = importlib.import_module("kernelwright_probe.script_steps")


class Record:
    def __init__(self):
        self.events = []

    def before(self):
        pass

    def begin(self):
        self.events.append("begin")

    def end(self):
        self.events.append("end")


counter = steps_module.OptimizerSteps(Record())
steps_module.watch_torch(counter.install)
import torch  # noqa: E402
from torch import nn  # noqa: E402

found = {}


def loop(name):
    def run(function):
        record = Record()
        counter.__init__(record)
        function()
        found[name] = record.events.count("end")
    return run


def optimizer(kind=torch.optim.SGD, **options):
    layer = nn.Linear(4, 4)
    return layer, kind(layer.parameters(), lr=0.01, **options)


def grads(layer):
    layer(torch.ones(2, 4)).sum().backward()


@loop("gan_two_critic_steps_a_generator_step")
def _():
    (d, critic), (g, generator) = optimizer(), optimizer()
    for _ in range(5):
        for layer, each in ((d, critic), (d, critic), (g, generator)):
            grads(layer)
            each.step()


@loop("one_optimizer_never_steps")
def _():
    (a, used), (_b, _unused) = optimizer(), optimizer()
    for _ in range(12):
        grads(a)
        used.step()


@loop("a_second_stage_with_an_optimizer_of_its_own")
def _():
    for lr in (0.1, 0.01):  # the first one is gone while the second one steps
        layer = nn.Linear(4, 4)
        each = torch.optim.SGD(layer.parameters(), lr=lr)
        for _ in range(5):
            grads(layer)
            each.step()


@loop("a_second_stage_beside_a_silent_optimizer")
def _():
    for layer, each in (optimizer(), optimizer()):
        for _ in range(12):
            grads(layer)
            each.step()


found["successions"] = counter.successions


@loop("accumulation_and_schedule")
def _():
    layer, each = optimizer(torch.optim.Adam, foreach=True)
    schedule = torch.optim.lr_scheduler.StepLR(each, 1)
    for micro in range(12):
        grads(layer)
        if micro % 4 == 3:
            each.step()
            schedule.step()


@loop("fused")
def _():
    layer, each = optimizer(torch.optim.AdamW, fused=True)
    for _ in range(3):
        grads(layer)
        each.step()


@loop("scaler_skips_one")
def _():
    layer, each = optimizer()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for index in range(4):
        scaler.scale(layer(torch.full((2, 4), float("inf") if index == 1 else 1.0)).sum()).backward()
        scaler.step(each)
        scaler.update()
        each.zero_grad()


found["skipped"] = counter.skipped


@loop("subclass_that_calls_super")
def _():
    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    layer, each = optimizer(Mine)
    for _ in range(3):
        grads(layer)
        each.step()


@loop("lbfgs_with_closure")
def _():
    layer, each = optimizer(torch.optim.LBFGS)

    def closure():
        each.zero_grad()
        loss = layer(torch.ones(2, 4)).pow(2).sum()
        loss.backward()
        return loss

    for _ in range(3):
        each.step(closure)


@loop("inside_backward")
def _():
    layer = nn.Linear(4, 4)
    each = {weight: torch.optim.SGD([weight], lr=0.01) for weight in layer.parameters()}
    for weight in layer.parameters():
        weight.register_post_accumulate_grad_hook(lambda weight: each[weight].step())
    for _ in range(3):
        grads(layer)


@loop("compiled_train_step")
def _():
    layer, each = optimizer(torch.optim.Adam)

    @torch.compile(backend="eager")
    def train(x):
        loss = layer(x).pow(2).mean()
        loss.backward()
        each.step()
        each.zero_grad()
        return loss

    losses = [float(train(torch.ones(2, 4)).detach()) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


@loop("compiled_optimizer_step")
def _():
    layer, each = optimizer(torch.optim.Adam)
    step = torch.compile(each.step, backend="eager")
    for _ in range(4):
        grads(layer)
        step()


@loop("own_optimizer_in_one_graph")
def _():
    class Own(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        @torch.no_grad()
        def step(self):
            for weight in self.param_groups[0]["params"]:
                weight.sub_(weight.grad, alpha=0.1)

    layer = nn.Linear(4, 4)
    each = Own(layer.parameters())

    @torch.compile(backend="eager", fullgraph=True)
    def step():
        each.step()

    for _ in range(4):
        grads(layer)
        step()


@loop("compiled_model_eager_step")
def _():
    layer, each = optimizer()
    compiled = torch.compile(layer, backend="eager")
    for _ in range(4):
        grads(compiled)
        each.step()


print(json.dumps(found))
