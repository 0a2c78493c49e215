"""Complex weights, buffers, inputs and outputs: float64 stands for float32, complex128 for complex64."""

from __future__ import annotations

import pytest
import torch

from judge_in_process import own_round, workload_of
from kernelwright.probe import judge_reference
from kernelwright.probe.judge_survey import relative_change


class Spectral(torch.nn.Module):
    """x: (b, n) -> logits (b, 4), and x filtered in the frequency domain (b, n): a filter as in GFNet or FNO, a table as in RoPE."""

    def __init__(self, n: int = 64, *, table: bool = False) -> None:
        super().__init__()
        self.head, self.n = torch.nn.Linear(n, 4), n
        weight = torch.randn(1, n // 2 + 1, dtype=torch.complex64)
        if table:
            self.register_buffer("weight", weight)
        else:
            self.weight = torch.nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.head(x), torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=self.n)


@pytest.mark.parametrize("table", [False, True])
def test_a_candidate_without_the_complex_filter_is_wrong_and_the_original_exact(table):
    workload = workload_of(Spectral(table=table).eval(), lambda: [torch.randn(8, 64)])
    model = workload.model
    for candidate, right in ((model, True), (lambda x: (model.head(x), 0.1 * x), False),
                             (lambda x: (model.head(x), torch.fft.irfft(torch.fft.rfft(x) * model.weight.real, n=64)), False)):
        errors, _ = own_round(workload, candidate, 3)
        assert errors[0].candidate_error < errors[0].limit and (errors[1].candidate_error < errors[1].limit) is right
        assert errors[1].reference_error < 1e-6 and errors[1].limit < 1e-4, "the filtered output is evidence"


def test_complex_inputs_and_outputs_have_an_oracle():
    class Turn(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return z * torch.polar(torch.ones(4, device=z.device), torch.arange(4.0, device=z.device))

    workload = workload_of(Turn().eval(), lambda: [torch.randn(8, 4, dtype=torch.complex64)])
    for candidate, right in ((workload.model, True), (lambda z: workload.model(z).conj().resolve_conj(), False)):
        errors, _ = own_round(workload, candidate, 3)
        assert (errors[0].candidate_error < errors[0].limit) is right


@pytest.mark.parametrize(("run", "own", "there"), [
    (None, torch.float32, torch.float32), (torch.float64, torch.float32, torch.float64), (torch.float64, torch.complex64, torch.complex128),
    (torch.float64, torch.int64, torch.int64), (torch.bfloat16, torch.complex64, torch.complex64),
    (torch.bfloat16, torch.float32, torch.bfloat16)])
def test_what_a_tensor_is_in_a_run_of_another_precision(run, own, there):
    assert judge_reference.dtype_in(run, own) == there


def test_the_change_of_a_complex_output_is_that_of_both_its_parts():
    before = torch.complex(torch.ones(4), torch.ones(4))
    after = torch.complex(torch.ones(4), torch.full((4,), 1.5))
    assert relative_change([("", before)], [("", after)]) == pytest.approx(0.25 ** 0.5 / 2 ** 0.5)
    assert relative_change([("", before)], [("", before + 1e-7)]) < 1e-6, "rounding is no other answer"
