"""Fakes of the optimiser's stages with a screen: a candidate's speed-up is the product of its passes' gains."""

from __future__ import annotations

import math

from kernelwright.model.trial import Screen
from kernelwright.model.verdict import Experiment
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.plan import LADDER, candidate
from kernelwright.optimize.screen import Ask
from kernelwright.optimize.shown import STRICT_FLOAT32
from optimizing import FakeStages, context

SHOWN = {STRICT_FLOAT32.name: STRICT_FLOAT32}
GAINS = {"compile_default": 1.5, "compile_reduce_overhead": 1.6, "compile_max_autotune": 2.0, "compile_max_autotune_no_cudagraphs": 1.7,
         "cuda_graph": 1.3, "channels_last": 1.2, "fold_conv_bn": 1.1, "bf16": 1.8, "tf32": 1.2, "no_grad": 1.0, "cudnn_benchmark": 1.0}
BEST = {"fold_conv_bn", "channels_last", "compile_max_autotune_no_cudagraphs", "cuda_graph", "no_grad"}


class FakeScreener:
    """A candidate's speed-up is the product of its passes' gains; each screen takes its kind's seconds on the fake clock."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages
        self.asked: list[str] = []
        self.ahead: list[str] = []
        self.hints: list[float | None] = []
        self.lasting: list[str] = []
        """Of those asked for, what leaves settings in its process."""
        self.compile_s: dict[str, float] = {}
        """What compiling ahead takes, by the kind of cost; below 0: it fails at once. Nothing is compiled where it is empty."""
        self.tuning_s = 30.0
        self.most = 3
        self.ended_ahead = 0
        self.let_end_at: list[tuple[float, int]] = []
        """When its processes were told to end, and how many of the judge's sessions were open; before those that compile ahead ended."""
        self.ready: dict[str, tuple[float, float]] = {}
        """By file: until when it is compiled, and from when it is."""

    def screen(self, ask: Ask) -> Screen:
        name = ask.file.stem.split("_", 1)[1]
        passes = name.split("__")
        assert ask.left_s >= ask.limit_s, "the loading of the workload counts too"
        self.asked.append(name if ask.against is None else f"{name} against {ask.against.stem.split('_', 1)[1]}")
        self.hints.append(ask.hopeless)
        self.lasting += self.asked[-1:] if ask.lasts else []
        seconds = 3.0 if self.compiled(ask.file) else max(
            {"cheap": 3.0, "compile": 10.0, "autotune": self.tuning_s}[{**CATALOGUE, **SHOWN}[part].cost] for part in passes)
        answer = self.stages.screens.get(name, self.stages.speed(passes))
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Screen):
            self.stages.clock.now += seconds
            return answer.model_copy(update={"elapsed_s": seconds})
        if seconds > ask.limit_s:
            self.stages.clock.now += ask.limit_s
            return Screen(status="out_of_budget", reason="did not finish", elapsed_s=ask.limit_s)
        self.stages.clock.now += seconds
        if ask.against is not None:
            answer /= self.stages.speed(ask.against.stem.split("_", 1)[1].removesuffix("__rest").split("__"))
        hopeless = ask.hopeless is not None and answer < ask.hopeless
        return Screen(status="hopeless" if hopeless else "timed", speedup=answer, interval=(answer * 0.999, answer * 1.001), pairs=9,
                      elapsed_s=seconds, build_s=seconds - 2.0, against=ask.against_name)

    def compile_ahead(self, files, limit_s):
        self.ahead += [file.stem.split("_", 1)[1] for file in files]
        assert all(file.is_file() for file in files)
        for file in files:
            costs = [CATALOGUE[name].cost for name in file.stem.split("_", 1)[1].split("__")]
            took_s, now = max((self.compile_s[cost] for cost in costs if cost in self.compile_s), default=None), self.stages.clock.now
            busy = sum(now < until for until, _ in self.ready.values())
            if took_s is None or file.name in self.ready or busy >= self.most:
                continue
            is_done = 0.0 <= took_s <= limit_s
            self.ready[file.name] = now + min(max(took_s, 0.0), limit_s), now + took_s if is_done else math.inf

    def processes(self):
        return self.most

    def begun(self, file):
        return file.name in self.ready

    def compiled(self, file):
        return self.ready.get(file.name, (0.0, math.inf))[1] <= self.stages.clock.now

    def compiling(self, files):
        return any(self.stages.clock.now < self.ready.get(file.name, (0.0, 0.0))[0] for file in files)

    def end_ahead(self):
        self.ended_ahead += 1

    def let_end(self):
        assert not self.ended_ahead or self.stages.confirming[-1][0], "at a search's end that waits for some of them"
        self.let_end_at.append((self.stages.clock.now, self.stages.open))


class Stages(FakeStages):
    def __init__(self, gains: dict[str, float] | None = None, screens: dict[str, object] | None = None, **changes: object) -> None:
        super().__init__({}, **changes)
        self.gains, self.screens = {**GAINS, **(gains or {})}, screens or {}
        self.screener = FakeScreener(self)

    def speed(self, passes) -> float:
        return math.prod(self.gains.get(name, 1.0) for name in passes)

    def judge(self, file, precision, seconds, *effort):
        name = file.stem.split("_", 1)[1].replace("__", "+") if file.name != "optimized.py" else ""
        if not name:
            name = "optimized:" + file.read_text().split(": ")[1].split(".")[0]
            self.speedups.setdefault(name, self.speed(name.partition(":")[2].split(", ")))
        self.speedups.setdefault(name, self.speed(name.split("+")))
        return super().judge(file, precision, seconds, *effort)


def screened(index: int, *passes: str, speedup: float, parents: tuple[str, ...] = (), **changes: object) -> Experiment:
    """A row of the ledger, of a candidate that was screened and not judged."""
    item = candidate(passes, context(), parents=parents, dimension=CATALOGUE[passes[-1]].dimension)
    screen = Screen(status="timed", speedup=speedup, interval=(speedup - 0.01, speedup + 0.01), pairs=9, elapsed_s=5.0)
    row = Experiment(index=index, name=item.name, passes=item.passes, precision=item.precision, candidate_file="c", status="screened",
                     screen=screen, parents=parents, dimension=item.dimension, ladder_row=item.name in LADDER)
    return row.model_copy(update=changes)
