"""The Triton examples without a GPU: they load, their torch versions are right, version triton says what is missing (exit 3)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.probe import judge_candidate, tree
from kernelwright.probe.failures import EXIT_MACHINE_LACKS, describe
from kernelwright.probe.loaders import LoadedWorkload, load

ROOT = Path(__file__).resolve().parents[2]
KERNELS = sorted((ROOT / "knowledge" / "kernels").glob("*.py"))
CANDIDATE = ROOT / "knowledge" / "kernels" / "candidates" / "triton_version.py"
PLAYBOOKS = sorted((ROOT / "knowledge" / "playbooks").glob("*.md"))
SMALL: dict[str, dict[str, str]] = {
    "fused_norm": {"rows": "3", "cols": "100", "norm": "layer"}, "cross_entropy": {"rows": "5", "classes": "70"},
    "split_k": {"k": "300", "m": "20", "n": "70"}, "persistent_gemm": {"m": "20", "n": "30", "k": "40"},
    "window_attention": {"b": "1", "h": "2", "t": "50", "d": "16", "window": "7"},
    "embedding_bag": {"rows": "20", "d": "12", "bags": "5", "length": "3"},
}


def each() -> pytest.MarkDecorator:
    """Once for each example."""
    return pytest.mark.parametrize("file", KERNELS, ids=lambda path: path.stem)


def loaded(file: Path, version: str, params: dict[str, str] | None = None) -> LoadedWorkload:
    before = list(sys.path)
    sys.modules.pop(file.stem, None)
    try:
        return load(str(file), version, {**SMALL[file.stem], **(params or {})}, "cpu")
    finally:
        sys.path[:] = before
        sys.modules.pop(file.stem, None)


def exact(workload: LoadedWorkload) -> Any:
    """The reference in float64."""
    assert workload.reference is not None
    return workload.reference(*tree.map_tensors(lambda x: x.double() if x.is_floating_point() else x, workload.args))


def test_the_six_are_there() -> None:
    assert {file.stem for file in KERNELS} == set(SMALL)


@each()
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_version_but_triton_runs_on_the_cpu_and_is_right(file: Path, dtype: str) -> None:
    versions = loaded(file, "torch").versions
    assert versions[0] == "torch" and versions[-1] == "triton" and set(versions) <= {"torch", "library", "triton"}
    for version in versions[:-1]:
        workload = loaded(file, version, {"dtype": dtype})
        outputs, right = tree.leaves(workload.step()), tree.leaves(exact(workload))
        assert [path for path, _ in outputs] == [path for path, _ in right]
        for (_, ours), (_, want) in zip(outputs, right, strict=True):
            assert ours.dtype == getattr(torch, dtype) and ours.shape == want.shape and want.dtype == torch.float64
            error = float((ours.double() - want).norm() / want.norm())
            assert error < 4 * torch.finfo(ours.dtype).eps, (version, error)


@each()
def test_every_parameter_reaches_inputs_or_work(file: Path) -> None:
    """Twice a size: other inputs, or another count of operations."""

    def facts(params: dict[str, str]) -> tuple[object, ...]:
        workload = loaded(file, "torch", params)
        return (workload.flops(), workload.bytes_moved(), [(x.shape, x.dtype) for x in workload.args])

    own = facts({})
    for name, value in SMALL[file.stem].items():
        other = str(2 * int(value)) if value.isdigit() else "rms"
        assert facts({name: other}) != own, name
    assert facts({"dtype": "bfloat16"}) != own


def test_the_window_and_the_norm_are_the_parameters() -> None:
    attention = ROOT / "knowledge" / "kernels" / "window_attention.py"
    narrow, wide = (loaded(attention, "torch", {"window": window}) for window in ("1", "50"))
    torch.testing.assert_close(narrow.step(), narrow.args[2])  # a window of one key gives its value
    q, k, v = wide.args
    torch.testing.assert_close(wide.step(), torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    norm = ROOT / "knowledge" / "kernels" / "fused_norm.py"
    x, residual, weight = (workload := loaded(norm, "torch", {"norm": "rms"})).args
    total = x + residual
    torch.testing.assert_close(workload.step(), (torch.nn.functional.rms_norm(total, weight.shape, weight, 1e-6), total))


@each()
def test_version_triton_says_what_is_missing(file: Path) -> None:
    """Without Triton a module, with it (and no GPU) CUDA: either way the machine's lack, exit 3, and no fault of the file."""
    workload = loaded(file, "triton")
    with pytest.raises((ModuleNotFoundError, RuntimeError)) as caught:
        workload.step()
    failure = describe(caught.value, str(file))
    assert failure.exit_code == EXIT_MACHINE_LACKS and failure.code in ("missing_module", "no_cuda")
    workload.module.triton = object()
    with pytest.raises(RuntimeError, match="the input is on the cpu") as without_gpu:
        workload.step()
    assert describe(without_gpu.value, str(file)).code == "no_cuda"


@each()
def test_the_candidate_is_version_triton_of_the_judged_file(file: Path) -> None:
    workload = loaded(file, "torch")
    candidate = judge_candidate.build(str(CANDIDATE), workload, 0)
    assert candidate.entry == "optimize" and candidate.precision == "equal"
    assert candidate.call is workload.module.VERSIONS["triton"]


@each()
def test_a_playbook_leads_to_it_and_it_names_that_playbook(file: Path) -> None:
    pages = [page.name for page in PLAYBOOKS if f"knowledge/kernels/{file.name}" in page.read_text(encoding="utf-8")]
    named = re.findall(r"(\w+\.md)", file.read_text(encoding="utf-8").split('"""')[1])
    assert named and set(named) <= set(pages)
