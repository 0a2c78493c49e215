"""compute-sanitizer for real: a Triton kernel that writes past its output, and one that does not."""

import sys

import pytest

from kernelwright.capture.nsight import find_sanitizer
from kernelwright.capture.system_view import real_system
from kernelwright.judge import JudgeOptions, ReferenceSession, judge
from kernelwright.model.workload import WorkloadRef

pytestmark = pytest.mark.gpu
WORKLOAD = """
import torch

def get_model_and_input():
    return torch.nn.ReLU(), torch.randn(1000, 33)
"""
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    value = tl.load(x + index, mask=inside, other=0.0)
    tl.store(out + index, tl.maximum(value, 0.0), mask=MASK)

def optimize(model, inputs):
    def call(x):
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
    return call
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sanitizer")
    (folder / "w.py").write_text(WORKLOAD)
    options = JudgeOptions(device="cuda", python=sys.executable, timing=False, sanitize=("memcheck",), timeout_s=300)
    with ReferenceSession(WorkloadRef(path=folder / "w.py", name="w"), options) as session:
        yield session


def judged(session, mask):
    candidate = session.workload.path.with_name(f"c_{len(mask)}.py")
    candidate.write_text(KERNEL.replace("MASK", mask))
    return judge(session.workload, candidate, session=session)


def row(verdict):
    return next(audit for audit in verdict.audits if audit.name == "sanitizer: memcheck")


def test_a_write_past_the_output_fails_with_the_kernels_name(session):
    pytest.importorskip("triton")
    verdict = judged(session, "index < n + 4096")
    found = row(verdict)
    if find_sanitizer(real_system()).path is None:
        assert found.result == "not_applicable" and "compute-sanitizer is not installed" in found.detail
        return
    assert found.result == "failed" and "relu_kernel" in found.detail and "Invalid __global__ write" in found.detail, found
    assert verdict.verdict == "FAILED" and verdict.correctness.passed


def test_a_right_kernel_passes(session):
    pytest.importorskip("triton")
    verdict = judged(session, "inside")
    found = row(verdict)
    if find_sanitizer(real_system()).path is None:
        assert found.result == "not_applicable"
        return
    assert found.result == "passed" and "0 errors" in found.detail, found
    assert verdict.verdict == "AMBIGUOUS"
