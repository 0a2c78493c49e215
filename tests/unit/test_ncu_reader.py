"""Reading .ncu-rep files: a real one, and everything that may be wrong with one."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from kernelwright.model.errors import BadInput, KernelwrightError, MachineLacks
from kernelwright.readers.ncu import NvtxRange, flat_shapes, parse_range, read_ncu
from kernelwright.readers.symbols import demangled, function_name, same_kernel
from ncu_reports import recorded
from strip_ncu_report import MAGIC, blocks, stripped


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("two", tmp_path_factory.mktemp("ncu"))


def written(report: Path, tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "changed.ncu-rep"
    path.write_bytes(data)
    return path


def refusal(path: Path, **options: int) -> BadInput:
    with pytest.raises(BadInput) as caught:
        read_ncu(path, **options)
    assert caught.value.fix and str(path) in caught.value.where
    return caught.value


def test_a_real_report(report: Path) -> None:
    read = read_ncu(report)
    assert (read.tool, read.device, read.compute_capability, read.passes) == ("ncu 2025.3.1", "NVIDIA H200", (9, 0), 1)
    launch, = read.launches
    assert launch.name == ("void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float, float, cudnnTensorStruct, float const*, "
                           "cudnnTensorStruct, float*, cudnnTensorStruct, float const*, float const*, float const*, float const*, float)")
    assert launch.function == "bn_fw_inf_1C11_kernel_NCHW"
    assert (launch.grid, launch.block, launch.cluster, launch.shared_bytes, launch.registers) == ((64, 16, 1), (512, 1, 1), None, 0, 19)
    assert (launch.stream, launch.device, launch.index) == (7, 0, 0)
    assert [(one.name, one.op_id) for one in launch.nvtx] == [
        ("kernelwright.step", 1), ("aten::batch_norm", 9), ("aten::_batch_norm_impl_index", 10), ("aten::cudnn_batch_norm", 11)]
    assert launch.nvtx[1].sizes == ((16, 64, 64, 64), (64,), (64,), (64,), (64,))
    assert launch.metrics["gpu__time_duration.sum"] == 12896.0
    assert launch.metrics["launch__occupancy_limit_registers"] == 5.0
    assert launch.metrics["device__attribute_max_warps_per_multiprocessor"] == 64.0
    assert "device__attribute_clock_rate" not in launch.metrics


def test_stripping_programs_again_changes_nothing(report: Path) -> None:
    assert stripped(report.read_bytes()) == report.read_bytes()


def test_missing_empty_and_foreign_files(report: Path, tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere.ncu-rep").code == "no_such_report"
    assert refusal(tmp_path).code == "unreadable_report"
    assert refusal(written(report, tmp_path, b"")).code == "empty_report"
    for data in (b"hello" * 1000, b"\x1f\x8b" + bytes(100), b"NVR", random.Random(0).randbytes(5000), b"SQLite format 3\0" + bytes(100)):
        assert refusal(written(report, tmp_path, data)).code == "not_a_report"
    assert refusal(report, max_bytes=1000).code == "report_too_large"


def test_every_cut_is_seen(report: Path, tmp_path: Path) -> None:
    """NVIDIA's reader takes a cut file and gives what is left, without a word."""
    data = report.read_bytes()
    places = [4, 6, 8, 9, 10, 40, len(data) // 2, len(data) - 100, len(data) - 1, *random.Random(1).sample(range(11, len(data)), 20)]
    for place in places:
        assert refusal(written(report, tmp_path, data[:place])).code in ("truncated_report", "no_kernels_in_report"), place
    assert refusal(written(report, tmp_path, data + b"\x01")).code == "truncated_report"
    assert refusal(written(report, tmp_path, MAGIC + b"\xff\xff\xff\xff" + data[8:])).code == "truncated_report"


def test_no_kernels(report: Path, tmp_path: Path) -> None:
    first, *rest = blocks(report.read_bytes())
    without = MAGIC + first[1] + b"".join(block for numbers, block in rest if not numbers.get(2))
    error = refusal(written(report, tmp_path, without))
    assert error.code == "no_kernels_in_report" and "--kernel-name" in error.fix


def test_a_version_that_cannot_be_read(report: Path, tmp_path: Path) -> None:
    data = report.read_bytes()
    assert data[8:10] == b"\x08\x07"
    error = refusal(written(report, tmp_path, data[:9] + b"\x02" + data[10:]))
    assert error.code == "foreign_report" and "file version 2" in error.message and "ncu 2025.3.1" in error.message


def test_damaged_bytes_never_escape_as_anything_but_an_error(report: Path, tmp_path: Path) -> None:
    data, chance, refused = report.read_bytes(), random.Random(2), 0
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(chance.choice((1, 5, 50))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            assert len(read_ncu(written(report, tmp_path, bytes(changed))).launches) == 1
        except KernelwrightError as error:
            refused += 1
            assert error.fix and "\n" not in error.line()
    assert refused


def test_without_nvidias_reader(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(MachineLacks) as caught:
        read_ncu(report)
    assert caught.value.code == "no_ncu_report" and caught.value.fix


@pytest.mark.parametrize(("text", "expected"), [
    ("aten::mm, seq = 3, op_id = 13, sizes = [[2, 3], [3, 4], []], input_op_ids = [(0,-1), (0,-1), (0,-1)]",
     NvtxRange("aten::mm", 13, ((2, 3), (3, 4)))),
    ("aten::cat, op_id = 7, sizes = [[], []], input_op_ids = [(0,-1)]", NvtxRange("aten::cat", 7, ())),
    ("Torch-Compiled Region: 0/0, op_id = 3", NvtxRange("Torch-Compiled Region: 0/0", 3)),
    ("stage:a, op_id = 2 of mine, op_id = 5", NvtxRange("stage:a, op_id = 2 of mine", 5)),
    ("my own range", NvtxRange("my own range")),
    ("x, op_id = 5, sizes = [[1, 2], input_op_ids = ", NvtxRange("x", 5, None)),
    ("x, op_id = " + "9" * 40, NvtxRange("x, op_id = " + "9" * 40)),
    ("line\nend, op_id = 4, sizes = [" + "[" * 5000 + "]" * 5000 + "]", NvtxRange("line\nend", 4, None)),
    ("", NvtxRange("")),
])
def test_ranges(text: str, expected: NvtxRange) -> None:
    read = parse_range(text)
    assert (read.name, read.op_id) == (expected.name, expected.op_id)
    assert read.sizes == expected.sizes or "[[[[" in text


def test_shapes_of_tensor_lists_are_flattened_as_emit_nvtx_does() -> None:
    assert flat_shapes([[2, 3], [[4], [5, 6], []], [], [[]], [7]]) == ((2, 3), (4,), (5, 6), (7,))
    assert flat_shapes(None) == () and flat_shapes("x") == ()


def test_names_with_and_without_a_demangler(monkeypatch: pytest.MonkeyPatch) -> None:
    symbol, name = "_ZN2at6native4sortIfLi4EEEvPT_", "void at::native::sort<float, 4>(float*)"
    assert demangled("triton_poi_fused_add_0") == "triton_poi_fused_add_0"
    assert same_kernel(name, name, symbol, "sort") and same_kernel(symbol, name, symbol, "sort")
    monkeypatch.setattr("kernelwright.readers.symbols.demangled", lambda _: None)
    assert same_kernel(name, "void at::native::sort<float, (int)4>(T1 *)", symbol, "sort")
    assert not same_kernel(name.replace("sort", "topk"), "void at::native::sort<float, (int)4>(T1 *)", symbol, "sort")
    assert function_name("void (anonymous namespace)::softmax_warp<float, 4>(float*)") == "softmax_warp"
    assert function_name("sm80_xmma_gemm") == "sm80_xmma_gemm"


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="no C++ run-time library with a demangler there")
def test_demangling() -> None:
    assert demangled("_ZN2at6native4sortIfLi4EEEvPT_") == "void at::native::sort<float, 4>(float*)"
    assert demangled("_Znot a symbol") is None
