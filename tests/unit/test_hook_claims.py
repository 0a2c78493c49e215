"""Which sentences claim a speed-up as a fact, and what a transcript holds against them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from claims import claims
from transcript import measured_speedups

import hook_runner

assert hook_runner.HOOKS.is_dir()


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        ("The new kernel is 2.3x faster.", 2.3),
        ("It is now 2.3× faster than the original.", 2.3),
        ("Done! `optimized.py` runs 30% faster, with no loss of accuracy.", 1.3),
        ("**Speedup: 1.8x**", 1.8),
        ("- Speed-up of about 1.8x at equal precision", 1.8),
        ("I sped the model up by 40%.", 1.4),
        ("This speeds it up 1.5x.", 1.5),
        ("We reduced the latency by 25 %.", 1.25),
        ("It is twice as fast now.", 2.0),
        ("The runtime was halved.", 2.0),
        ("A 3-fold speedup came from fusing.", 3.0),
        ("The Triton version is 1,7 times faster.", 1.7),
        ("| fused | 2.10x faster |", 2.1),
        ("I measured 410 us before and 205 us after. That is 2x faster.", 2.0),
        ("Should you need more, tell me. The kernel is 4x faster.", 4.0),
        ("The stage is memory-bound and 1.4x faster than before.", 1.4),
        ("Result: 12.5 percent faster.", 1.125),
    ],
)
def test_a_claim(text: str, ratio: float) -> None:
    assert claims(text) == [pytest.approx(ratio)]


@pytest.mark.parametrize(
    "text",
    [
        "It could be 2x faster.",
        "A fused kernel would be about 2x faster.",
        "This should run 30% faster.",
        "Expect a speedup of 2x.",
        "Up to 3x faster is possible.",
        "The roofline allows 3x faster.",
        "In theory it is 3x faster.",
        "est. 40.0% gain",
        "Estimated speed-up: 2x",
        "Is it 2x faster?",
        "Do you want it 2x faster?",
        "The goal: 2x faster.",
        "Target is 30% faster",
        "You asked for 2x faster.",
        "It is not 2x faster.",
        "It wasn't 30% faster.",
        "There is no 2x speedup here.",
        "Nothing ran 2x faster.",
        "I can't say that it is 2x faster.",
        "Next I will try to make it 2x faster.",
        "If the tiles were smaller, it is 2x faster.",
        "Compiled code is often 2x faster.",
        "The paper claims 3x faster.",
        "> 3x faster",
        "```\nspeedup: 3x faster\n```",
        "`3x faster`",
        "1. Fuse elementwise operators — est. 31.0% gain — trigger: elementwise_share=31%",
        "The candidate claimed 3x faster but it was judged WRONG.",
        "2x faster would be the roof.",
        "2.0x faster is to be judged first.",
        "I ran it 3 times, faster machines next.",
        "The matrix is 4x4.",
        "Version 2x",
        "It took 30% of the time budget.",
        "Use 2x larger tiles.",
        "1.0x faster",
        "0.8x faster",
        "It got 10% slower.",
        "No change: SAME.",
        "",
    ],
)
def test_no_claim(text: str) -> None:
    assert claims(text) == []


def test_hostile_texts_end_soon() -> None:
    for text in ("9" * 100_000, "speed up " * 20_000, "2x " * 50_000, "sped a b c d " * 10_000, "`" * 50_001, "> " * 50_000):
        claims(text)


USED = {
    "type": "assistant",
    "message": {"content": [{"type": "tool_use", "input": {"command": 'python3 "/p/scripts/judge.py" w.py c.py'}}]},
}


def written(folder: Path, *entries: object) -> str:
    """A transcript of these entries."""
    path = folder / "transcript.jsonl"
    path.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n")
    return str(path)


def result(text: object) -> dict[str, object]:
    """What a tool gave back."""
    return {"type": "user", "message": {"content": [{"type": "tool_result", "content": text}]}}


@pytest.mark.parametrize(
    ("entry", "best"),
    [
        (result('{"status": "ok", "verdict": "FASTER", "speedup": 1.31, "interval": [1.28, 1.35]}'), 1.31),
        (result([{"type": "text", "text": '{"kept": ["tf32"], "speedup": 2.5}'}]), 2.5),
        (result("FASTER\n- 1.310x faster [1.280, 1.350]"), 1.31),
        (result("Speed-up 1.310x, 95% interval 1.280 to 1.350."), 1.31),
        (result("| Duration (us) | 100.00 | 50.00 | 50.0% faster |"), 2.0),
        ({"type": "attachment", "attachment": {"content": ["kernelwright: the verdict on c.py is FASTER, speed-up 1.310x"]}}, 1.31),
        (result('{"verdict": "WRONG", "speedup": null}'), 1.0),
        (result("3.0x"), 1.0),
        ({"type": "assistant", "message": {"content": [{"type": "text", "text": '"speedup": 9.0'}]}}, 1.0),
        ({"type": "user", "message": {"content": 'make it faster: "speedup": 9.0'}}, 1.0),
    ],
)
def test_what_counts_as_measured(tmp_path: Path, entry: object, best: float) -> None:
    assert max(measured_speedups(written(tmp_path, USED, entry)) or []) == pytest.approx(best)


def test_a_session_without_kernelwright_is_left_alone(tmp_path: Path) -> None:
    assert measured_speedups(written(tmp_path, result("FASTER 9.0x"))) is None


def test_a_broken_transcript_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(
        json.dumps(USED).encode()
        + b'\n{"type": "user", "faster\n\xff\xfe faster\n[1, "faster"]\n'
        + json.dumps(result('"speedup": 2.0')).encode()
    )
    assert max(measured_speedups(str(path)) or []) == 2.0
