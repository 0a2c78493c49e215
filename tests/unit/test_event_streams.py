"""Mode event's warnings for a call that works on several streams; the GPU's part is a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from kernelwright.probe import event, streams, timers
from kernelwright.probe.timers import Timing, Warmup


@dataclass(frozen=True)
class Stream:
    """What torch.cuda.Stream shows of itself here."""

    cuda_stream: int


HERE, SIDE, OTHER = Stream(0), Stream(11), Stream(12)


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[Stream]:
    """The streams that were made current, one after another."""
    entered: list[Stream] = [HERE]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: entered[-1])
    monkeypatch.setattr(torch.cuda, "set_stream", entered.append)
    return entered


def on(*visited: Stream) -> Callable[[], None]:
    def call() -> None:
        for stream in visited:
            torch.cuda.set_stream(stream)  # type: ignore[arg-type]
    return call


def warnings(monkeypatch: pytest.MonkeyPatch, call: Callable[[], None], *, wall_us: float = 100.0, device: str = "cuda",
             stable: bool = True) -> list[str]:
    """Those of a call whose events say 100 us."""
    timed = Timing([100e3] * 9, [10e3] * 9, [wall_us * 1e3] * 9, "cuda_events", 1, False, None)
    monkeypatch.setattr(timers, "time_calls", lambda *given, **options: timed)
    return event.timing(call, device, Warmup(5, 0.1, 1e-4, stable), samples=None, flush_l2=False)[1]


@pytest.mark.parametrize(("visited", "words"), [
    ((SIDE, HERE), "on 1 stream beside"), ((SIDE, OTHER, SIDE, HERE), "on 2 streams beside"), ((HERE,), None), ((), None),
])
def test_a_call_on_other_streams_is_warned_of(
        monkeypatch: pytest.MonkeyPatch, current: list[Stream], visited: tuple[Stream, ...], words: str | None) -> None:
    said = warnings(monkeypatch, on(*visited))
    assert (len(said) == 1 and words in said[0] and "--mode nsys" in said[0]) if words else not said
    assert current == [HERE, *visited]  # the call's own streams were set as it asked


def test_the_cpu_has_no_streams(monkeypatch: pytest.MonkeyPatch, current: list[Stream]) -> None:
    assert not warnings(monkeypatch, on(SIDE), device="cpu")
    assert current == [HERE]


@pytest.mark.parametrize(("wall_us", "warned"), [(100.0, False), (120.0, False), (140.0, False), (160.0, True)])
def test_work_that_outlasts_the_timed_stream_is_warned_of(
        monkeypatch: pytest.MonkeyPatch, current: list[Stream], wall_us: float, warned: bool) -> None:
    said = warnings(monkeypatch, on(), wall_us=wall_us)
    assert [("GPU work went on" in line and streams.INSTEAD in line) for line in said] == ([True] if warned else [])


def test_each_doubt_is_a_warning_of_its_own(monkeypatch: pytest.MonkeyPatch, current: list[Stream]) -> None:
    assert len(warnings(monkeypatch, on(SIDE, HERE), wall_us=500.0, stable=False)) == 3


def test_a_call_that_raises_leaves_torch_as_it_was(current: list[Stream]) -> None:
    def call() -> None:
        raise ValueError("mine")

    before = torch.cuda.set_stream
    with pytest.raises(ValueError, match="mine"):
        streams.entered(call)
    assert torch.cuda.set_stream is before
