"""Compiled code brought to the stages: folder names, what lies in them, what profile.json and report.md say of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import builders
from contract_format import split_row
from kernelwright.model.capture import ProbeResult
from kernelwright.model.compiled import CompiledIndex
from kernelwright.model.errors import BadInput
from kernelwright.model.profile import Kernel, Operator, Profile
from kernelwright.pipeline.artifacts import write_artifacts
from kernelwright.pipeline.compiled import free_name, plan, python_names, read_index, rows, source_nodes, with_python_names
from kernelwright.report import render_report

GRAPH = """
# Topologically Sorted Source Nodes: [linear, relu], Original ATen: [aten.addmm, aten.relu]
# Source node to ATen node mapping:
#   relu => relu
triton_poi_fused_relu_0 = async_compile.triton('triton_poi_fused_relu_0', '''
@triton.jit
def triton_poi_fused_relu_0(): ...
''', device_str='cuda')

cpp_fused_silu_1 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel() {}
''')
"""


def variant(config: dict[str, Any], *files: tuple[str, str]) -> dict[str, Any]:
    return {"config": config, "num_warps": 8, "num_stages": 3, "registers": 40, "spills": 0, "shared_bytes": 2048,
            "files": [{"file": file, "kind": kind, "bytes": 3} for file, kind in files]}


def user_kernel(name: str = "tile_kernel") -> dict[str, Any]:
    best = {"ROWS": 4, "num_warps": 8}
    timings = [{"config": best, "time_ns": 10_000.0}, {"config": {"ROWS": 1, "num_warps": 4}, "time_ns": 20_000.0},
               {"config": {"ROWS": 16, "num_warps": 4}, "time_ns": None}]
    return {"name": name, "python_name": name, "source": "softmax.py:44", "origin": "triton", "configs_tried": 3,
            "variants": [variant(best, ("k0000.ptx", "ptx"), ("k0001.cubin", "cubin"))],
            "tunings": [{"key": "(4096, 256)", "best": best, "timings": timings, "note": ""}]}


def generated_kernel() -> dict[str, Any]:
    best = {"XBLOCK": 256}
    return {"name": "triton_poi_fused_relu_0", "python_name": None, "source": None, "origin": "inductor", "configs_tried": 1,
            "variants": [variant(best, ("k0002.ptx", "ptx"))],
            "tunings": [{"key": "", "best": best, "timings": [], "note": "one configuration to try"}]}


CHOICE = {"operator": "addmm", "inputs": ["float32[8, 8]"], "candidates": 2, "timings": [
    {"name": "triton_mm_3", "description": "BLOCK_M=64", "time_ns": 4000.0}, {"name": "addmm", "description": "", "time_ns": 5000.0}]}


def kernel(name: str, place: int = 0) -> Kernel:
    made = builders.operators(("x",), 1, 1000)[0].kernels[0]
    return made.model_copy(update={"kernel_name": name, "kernel_id": f"{name}{place}"})


def operator(name: str, *kernels: str, stage: str | None = None) -> Operator:
    made = builders.operators((name,), 1, 1000)[0]
    return made.model_copy(update={"kernels": tuple(kernel(k, i) for i, k in enumerate(kernels)), "stage": stage})


def capture(folder: Path, **index: Any) -> ProbeResult:
    raw = folder / "raw" / "compiled"
    raw.mkdir(parents=True, exist_ok=True)
    for name in ("k0000.ptx", "k0001.cubin", "k0002.ptx"):
        (raw / name).write_text(name)
    (raw / "k0003.py").write_text(GRAPH)
    (raw / "index.json").write_text(json.dumps(index))
    return ProbeResult(status="ok", compiled_file="compiled/index.json")


def profiled(folder: Path, result: ProbeResult, operators: tuple[Operator, ...], loose: tuple[Kernel, ...] = ()) -> Profile:
    """As assemble() does it, on a profile made by hand."""
    index, warnings = read_index(folder / "raw", result.compiled_file)
    assert index is not None and warnings == ()
    profile = builders.gpu_annotation(operators=operators, unattributed_kernels=loose)
    compiled = rows(plan(index, folder / "raw", operators, loose, None))
    return with_python_names(profile.model_copy(update={"compiled_kernels": compiled}), python_names(index))


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for top in ("tiling", "compiled") for path in (folder / top).rglob("*") if path.is_file())


ALL = {"kernels": [user_kernel(), generated_kernel()], "choices": [CHOICE],
       "graphs": [{"name": "abc.py", "file": {"file": "k0003.py", "kind": "py", "bytes": 3}}]}


def test_files_go_to_the_stages_whose_timeline_shows_the_kernel(tmp_path: Path) -> None:
    result = capture(tmp_path, **ALL)
    operators = (operator("aten::addmm", "sm80_xmma_gemm", stage="ffn"), operator("relu", "triton_poi_fused_relu_0", stage="ffn"),
                 operator("a", "tile_kernel", stage="soft/max"), operator("b", "tile_kernel", stage="SOFT_MAX"))
    profile = profiled(tmp_path, result, operators)
    write_artifacts(tmp_path, result, profile, "whole")
    assert tree(tmp_path) == [
        "compiled/SOFT_MAX/tile_kernel.cubin", "compiled/SOFT_MAX/tile_kernel.ptx",
        "compiled/ffn/cpp_fused_silu_1.cpp", "compiled/ffn/output_code_1.py", "compiled/ffn/triton_poi_fused_relu_0.ptx",
        "compiled/soft_max-2/tile_kernel.cubin", "compiled/soft_max-2/tile_kernel.ptx",
        "tiling/SOFT_MAX.json", "tiling/SOFT_MAX/autotuning.json", "tiling/ffn.json", "tiling/ffn/autotuning.json",
        "tiling/soft_max-2.json", "tiling/soft_max-2/autotuning.json"]
    named = {path for row in profile.compiled_kernels for path in row.artifacts}
    assert named == set(tree(tmp_path))
    tuning = json.loads((tmp_path / "tiling" / "ffn" / "autotuning.json").read_text())
    assert tuning["evidence"] == "autotuner" and tuning["choices"][0]["timings"][0]["name"] == "triton_mm_3"
    tiling = json.loads((tmp_path / "tiling" / "ffn.json").read_text())
    assert tiling["stage"] == "ffn" and tiling["kernels"][0]["config"] == {"XBLOCK": 256}
    assert tiling["kernels"][0]["fused_nodes"] == ["linear", "relu"]
    assert (tmp_path / "compiled" / "ffn" / "cpp_fused_silu_1.cpp").read_text().startswith("\n#include")


def test_rows_of_the_profile_and_the_report(tmp_path: Path) -> None:
    result = capture(tmp_path, **ALL)
    profile = profiled(tmp_path, result, (operator("aten::addmm", "gemm"),), (kernel("tile_kernel"),))
    by_name = {row.kernel_name: row for row in profile.compiled_kernels}
    assert set(by_name) == {"tile_kernel", "triton_poi_fused_relu_0", "cpp_fused_silu_1", "triton_mm_3"}
    own = by_name["tile_kernel"]
    assert (own.best_ns, own.second_ns, own.configs_tried, own.registers, own.evidence, own.timing_evidence) == (
        10_000.0, 20_000.0, 3, 40, "compiler", "autotuner")
    assert own.stages == ("(unattributed)",) and "compiled/unattributed/tile_kernel.ptx" in own.artifacts
    assert by_name["triton_poi_fused_relu_0"].stages == ()  # ran, but not in the profiled steps
    assert "compiled/not-in-timeline/triton_poi_fused_relu_0.ptx" in by_name["triton_poi_fused_relu_0"].artifacts
    assert by_name["triton_mm_3"].stages == ("aten::addmm",) and by_name["triton_mm_3"].tuned_for == "addmm(float32[8, 8])"
    assert profile.unattributed_kernels[0].python_name == "tile_kernel (softmax.py:44)"
    text = render_report(profile)
    section = text.split("## Compiled code")[1].split("\n## ")[0]
    assert "| `tile_kernel` | tile_kernel (softmax.py:44) | ROWS=4, num_warps=8 | 40 | 0 | 2048 | 3 | 10.00 | 20.00 |" in section
    assert "| `triton_poi_fused_relu_0` | n/a | XBLOCK=256 | 40 | 0 | 2048 | 1 | n/a | n/a |" in section
    assert "triton_poi_fused_relu_0: one configuration to try" in section and "Inductor generated 1 C++ kernel." in section
    assert "`tiling/unattributed/autotuning.json`" in section
    assert "`tile_kernel (softmax.py:44)`" in text.split("## Top kernels")[1].split("## Compiled")[0]


def test_without_a_timeline_one_folder_holds_all(tmp_path: Path) -> None:
    result = capture(tmp_path, **ALL)
    write_artifacts(tmp_path, result, builders.event(), "my kernel")
    assert {path.split("/")[1] for path in tree(tmp_path)} == {"my_kernel", "my_kernel.json"}
    assert len(tree(tmp_path)) == 7
    assert json.loads((tmp_path / "tiling" / "my_kernel.json").read_text())["stage"] is None


def test_cpu_code_goes_to_the_compiled_region(tmp_path: Path) -> None:
    result = capture(tmp_path, graphs=ALL["graphs"])
    profile = profiled(tmp_path, result, (operator("aten::mm", "aten::mm"), operator("Torch-Compiled Region: 0/0", "region")))
    write_artifacts(tmp_path, result, profile, "whole")
    assert tree(tmp_path) == ["compiled/Torch-Compiled_Region_0_0/cpp_fused_silu_1.cpp",
                              "compiled/Torch-Compiled_Region_0_0/output_code_1.py", "tiling/Torch-Compiled_Region_0_0.json"]


def test_nothing_compiled_means_no_folders(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    write_artifacts(tmp_path, ProbeResult(status="ok"), builders.gpu_annotation(), "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]
    assert "Compiled code" not in render_report(builders.gpu_annotation())


def test_a_second_run_takes_away_what_the_first_wrote_and_no_more(tmp_path: Path) -> None:
    result = capture(tmp_path, **ALL)
    write_artifacts(tmp_path, result, builders.event(), "first")
    (tmp_path / "compiled" / "mine").mkdir()
    (tmp_path / "compiled" / "mine" / "keep.txt").write_text("the user's")
    (tmp_path / "outside").write_text("x")
    placed = tmp_path / "raw" / "compiled" / "placed.json"
    placed.write_text(json.dumps([*json.loads(placed.read_text()), "compiled/../outside", "../x", "/etc/hostname", 3]))
    write_artifacts(tmp_path, ProbeResult(status="ok"), builders.event(), "second")
    assert tree(tmp_path) == ["compiled/mine/keep.txt"] and not (tmp_path / "tiling").exists() and (tmp_path / "outside").exists()


def test_a_raw_file_that_is_gone_or_a_link_is_left_out(tmp_path: Path) -> None:
    result = capture(tmp_path, kernels=[user_kernel()])
    (tmp_path / "raw" / "compiled" / "k0000.ptx").unlink()
    (tmp_path / "raw" / "compiled" / "k0001.cubin").unlink()
    (tmp_path / "raw" / "compiled" / "k0001.cubin").symlink_to("/etc/hostname")
    write_artifacts(tmp_path, result, builders.event(), "w")
    assert tree(tmp_path) == ["tiling/w.json", "tiling/w/autotuning.json"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    result = capture(tmp_path, kernels=[user_kernel()])
    (tmp_path / "compiled").write_text("a file")
    with pytest.raises(BadInput, match="can't write there"):
        write_artifacts(tmp_path, result, builders.event(), "w")


@pytest.mark.parametrize("stages", [["a/b", "a b", "A_B", "a_b.json"], ["../..", "..", "/etc", "\x00\n", ""], ["é" * 300, "é" * 299]])
def test_hostile_stage_names_give_different_plain_folders(stages: list[str]) -> None:
    taken: set[str] = set()
    names = [free_name(stage, taken) for stage in stages]
    files = [name.casefold() for name in names] + [f"{name}.json".casefold() for name in names]
    assert len(set(files)) == len(files)
    for name in names:
        assert name and "/" not in name and not name.startswith(".") and name.isprintable() and len(name.encode()) < 120


@pytest.mark.parametrize("change", [
    {"kernels": [{**user_kernel(), "source_file": {"file": "../../x", "kind": "py", "bytes": 1}}]},
    {"kernels": [{**user_kernel(), "name": "x" * 501}]}, {"kernels": [{}] * 2}, {"surprise": 1}])
def test_an_index_that_is_not_one_costs_its_artifacts_alone(tmp_path: Path, change: dict[str, Any]) -> None:
    result = capture(tmp_path, **change)
    index, warnings = read_index(tmp_path / "raw", result.compiled_file)
    assert index is None and "not an index" in warnings[0]
    write_artifacts(tmp_path, result, builders.event(), "w")
    assert tree(tmp_path) == []


def test_an_index_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = capture(tmp_path, **ALL)
    monkeypatch.setattr("kernelwright.pipeline.compiled.MAX_INDEX_BYTES", 10)
    assert read_index(tmp_path / "raw", result.compiled_file)[0] is None
    assert "can't be read: No such file" in read_index(tmp_path / "raw", "compiled/other.json")[1][0]


def test_names_with_tritons_old_suffix_are_found(tmp_path: Path) -> None:
    index = CompiledIndex.model_validate({"kernels": [user_kernel("row_kernel")]})
    (row,) = rows(plan(index, tmp_path, (operator("op", "row_kernel_0d1d2c"),), (), None))
    assert row.stages == ("op",)


def test_source_nodes_belong_to_the_line_after_the_comment() -> None:
    text = "# Topologically Sorted Source Nodes: [a], Original ATen: []\nextern.mm(x)\ncpp_fused_1(x)\n" \
           "    # Topologically Sorted Source Nodes: [b, c], Original ATen: []\n    triton_poi_2.run(x)\n"
    assert source_nodes([text]) == {"triton_poi_2": ("b", "c")}


def test_hostile_names_stay_inert_in_the_report(tmp_path: Path) -> None:
    entry = {**user_kernel(builders.HOSTILE), "source": builders.HOSTILE}
    entry["variants"] = [variant({builders.HOSTILE: builders.HOSTILE}, ("k0000.ptx", "ptx"))]
    result = capture(tmp_path, kernels=[entry])
    profile = profiled(tmp_path, result, (operator("op", builders.HOSTILE),))
    section = render_report(profile).split("## Compiled code\n")[1].split("\n## ")[0]
    assert not [line for line in section.splitlines() if line.startswith("#")]
    outside_code = re.sub(r"`[^`\n]*`", "", section)
    assert not re.search(r"(?<!\\)<[A-Za-z/!]", outside_code) and "](" not in outside_code
    assert len({len(split_row(line)) for line in section.splitlines() if line.startswith("|")}) == 1
    write_artifacts(tmp_path, result, profile, "w")
    assert len(tree(tmp_path)) == 3
