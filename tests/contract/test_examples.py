"""The examples load through the probe's own loaders, run on the CPU, and have the documented sizes on a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kernelwright.model.errors import BadInput
from kernelwright.pipeline.discover import discover
from kernelwright.pipeline.target import resolve_target
from kernelwright.project import PROJECT_FILE, read_project

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PROBE = ROOT / "src" / "kernelwright" / "probe"

GPU_PARAMS: dict[str, dict[str, int]] = {
    "gpt2": {"b": 4, "t": 128, "layers": 12, "d": 768, "heads": 12, "vocab": 50257},
    "conv_block": {"b": 16, "size": 64, "c": 64},
    "embedding_projection": {"b": 64, "t": 128, "v": 32000, "d": 512},
    "mlp_activations": {"b": 256, "d": 512, "f": 2048},
    "sdpa_attention": {"b": 8, "t": 512, "d": 512, "h": 8},
    "depthwise_separable_conv": {"b": 16, "c_in": 32, "c_out": 256, "size": 56},
    "lstm_sequence_encoder": {"b": 32, "t": 128, "d": 256, "h": 512, "layers": 2},
}
"""The seven workloads at the sizes that the project's measurements are quoted for."""
GPU_SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "gpt2": ((4, 128), (4, 128, 50257)),
    "conv_block": ((16, 3, 64, 64), (16, 10)),
    "embedding_projection": ((64, 128), (64, 128, 32000)),
    "mlp_activations": ((256, 512), (256, 512)),
    "sdpa_attention": ((8, 512, 512), (8, 512, 512)),
    "depthwise_separable_conv": ((16, 32, 56, 56), (16, 256, 56, 56)),
    "lstm_sequence_encoder": ((32, 128, 256), (32, 10)),
}
OTHERS = ("train", "train_ddp", "train_mlp_step", "triton_softmax", "kernelbench_layernorm", "kernelbench_layernorm_new")


def probe_module(name: str) -> Any:
    """One of the probe's modules, loaded as the probe loads itself."""
    if "kernelwright_probe" not in sys.modules:
        spec = importlib.util.spec_from_file_location("kernelwright_probe", PROBE / "__init__.py", submodule_search_locations=[str(PROBE)])
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["kernelwright_probe"] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"kernelwright_probe.{name}")


def load(name: str, version: str | None = None, params: dict[str, str] | None = None) -> Any:
    before = list(sys.path)
    try:
        return probe_module("loaders").load(str(EXAMPLES / f"{name}.py"), version, params or {}, "cpu", 0)
    finally:
        sys.path[:] = before
        sys.modules.pop(name, None)


def tensors(outcome: Any) -> list[torch.Tensor]:
    return [tensor for _, tensor in probe_module("tree").leaves(outcome)]


def imported_as_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it comes out where torch sees a GPU."""
    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "is_available", lambda: True)
        spec = importlib.util.spec_from_file_location(f"as_on_a_gpu_{name}", EXAMPLES / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def test_the_folder_holds_the_seven_and_the_named_others() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*GPU_PARAMS, *OTHERS}


@pytest.mark.parametrize("name", GPU_PARAMS)
def test_loads_and_runs_on_the_cpu(name: str) -> None:
    workload = load(name)
    assert workload.form == "model" and not workload.training and list(workload.params) == list(GPU_PARAMS[name])
    with torch.no_grad():
        outputs = tensors(workload.step())
    assert outputs and all(torch.isfinite(tensor).all() for tensor in outputs)
    assert all(parameter.dtype == torch.float32 for parameter in workload.model.parameters())
    args, kwargs = workload.fresh_inputs(1)
    assert not torch.equal(tensors((args, kwargs))[0], tensors((workload.args, workload.kwargs))[0])


@pytest.mark.parametrize("name", GPU_PARAMS)
def test_sizes_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported_as_on_a_gpu(name, monkeypatch)
    assert GPU_PARAMS[name] == module.PARAMS
    model, x = module.get_model_and_input(device="meta")
    with torch.no_grad():
        assert (tuple(x.shape), tuple(model(x).shape)) == GPU_SHAPES[name]
    assert not model.training


def test_gpt2_has_the_published_number_of_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = imported_as_on_a_gpu("gpt2", monkeypatch).get_model_and_input(device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == 124_439_808  # Hugging Face's `gpt2`


@pytest.mark.parametrize("name", GPU_PARAMS)
def test_every_parameter_reaches_the_workload(name: str) -> None:
    usual = load(name)

    def facts(workload: Any) -> tuple[object, ...]:
        modules = list(workload.model.modules())
        shapes = [tuple(tensor.shape) for tensor in [*tensors(workload.args), *workload.model.parameters()]]
        return (len(modules), *shapes, *(getattr(module, key, None) for module in modules for key in ("h", "heads")))

    for parameter, value in usual.params.items():
        assert facts(load(name, params={parameter: str(2 * value)})) != facts(usual), parameter


def test_an_unknown_parameter_names_the_known_ones() -> None:
    failures = probe_module("failures")
    with pytest.raises(failures.ProbeFailure) as caught:
        load("mlp_activations", params={"width": "3"})
    assert "b, d, f" in str(vars(caught.value))


def test_embedding_projection_marks_its_stages() -> None:
    workload = load("embedding_projection")
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        workload.step()
    marked = [event.key for event in profiler.key_averages() if event.key.startswith("stage:")]
    assert sorted(marked) == ["stage:embed", "stage:ffn", "stage:norm", "stage:project"]


def test_training_step_is_taken_for_one_and_leaves_gradients() -> None:
    workload = load("train_mlp_step")
    assert workload.training
    loss = workload.step()
    gradients = [parameter.grad for parameter in workload.model.parameters()]
    assert loss.dim() == 0 and gradients and all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)


def test_triton_softmax_v1_runs_anywhere_and_the_others_say_what_they_need() -> None:
    workload = load("triton_softmax", "v1", {"rows": "64", "cols": "100"})
    assert workload.versions == ("v1", "v2", "v3")
    torch.testing.assert_close(workload.step(), workload.reference(*workload.args))
    assert workload.flops() == 5 * 64 * 100 and workload.bytes_moved() == 2 * 64 * 100 * 4
    assert load("triton_softmax", "v1", {"rows": "64", "cols": "100", "dtype": "bfloat16"}).bytes_moved() == 2 * 64 * 100 * 2
    for version in ("v2", "v3"):
        with pytest.raises(RuntimeError, match=f"softmax {version} needs .*v1 runs anywhere"):
            load("triton_softmax", version).step()


@pytest.mark.gpu
@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 1000), (33, 4096)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_triton_softmax_on_the_gpu(version: str, rows: int, cols: int, dtype: str) -> None:
    workload = probe_module("loaders").load(
        str(EXAMPLES / "triton_softmax.py"), version, {"rows": str(rows), "cols": str(cols), "dtype": dtype}, "cuda", 0)
    torch.testing.assert_close(workload.step(), workload.reference(*workload.args))


def test_kernelbench_form_and_its_candidate_agree() -> None:
    loaders = probe_module("loaders")
    workload = load("kernelbench_layernorm")
    assert workload.form == "kernelbench" and workload.params == {}
    candidate = loaders.import_file(str(EXAMPLES / "kernelbench_layernorm_new.py"))
    new = loaders.build_kernelbench_model(workload.module, candidate.ModelNew, {}, "cpu", 0)
    for parameter in workload.model.parameters():
        torch.nn.init.normal_(parameter)
    new.load_state_dict(workload.model.state_dict())
    x = 3 + 2 * torch.randn_like(workload.args[0])
    with torch.no_grad():
        torch.testing.assert_close(new(x), workload.model(x), rtol=1e-5, atol=1e-5)


def test_project_file_names_what_is_there() -> None:
    project = read_project(EXAMPLES / PROJECT_FILE).kernels
    assert project and all(kernel.file is not None and kernel.file.is_file() for kernel in project.values())
    softmax = project["triton_softmax"]
    assert softmax.version_names == load("triton_softmax").versions
    assert set(softmax.params) <= set(load("triton_softmax").params)


@pytest.mark.parametrize(
    ("target", "version", "expected"),
    [("v2", None, ("triton_softmax", "v2")), ("triton_softmax", "v3", ("triton_softmax", "v3")),
     ("triton_softmax", None, ("triton_softmax", "v1")), ("layernorm", None, ("layernorm", None))],
)
def test_project_targets(target: str, version: str | None, expected: tuple[str, str | None]) -> None:
    found = resolve_target(target, version, {}, None, start=EXAMPLES)
    assert (found.name, found.version) == expected and found.path.is_file()


def test_unknown_project_target_names_the_choices() -> None:
    with pytest.raises(BadInput) as caught:
        resolve_target("v9", None, {}, None, start=EXAMPLES)
    assert "triton_softmax" in caught.value.fix


def test_the_sample_project_is_what_init_finds_and_its_inputs_fit_its_versions() -> None:
    folder = EXAMPLES / "project"
    project = read_project(folder / PROJECT_FILE)
    found = {one.name: one for one in discover(folder)}
    assert found.keys() == project.kernels.keys() == {"rmsnorm", "transpose"}
    assert [len(kernel.versions) for kernel in project.kernels.values()] == [5, 2]
    for name, kernel in project.kernels.items():
        assert kernel.file == folder / str(found[name].file) and kernel.budgets and kernel.sweep
        assert found[name].versions == f"{name}_v*.py:{name}"
        tree = {version.name: version.file(kernel) for version in kernel.versions}
        assert all(f"def {name}(" in file.read_text() for file in tree.values())
        module = probe_module("loaders").import_file(str(kernel.file))
        small = {key: value if isinstance(value, str) else 32 for key, value in module.PARAMS.items()}
        inputs = module.get_inputs(**small)
        assert torch.isfinite(module.reference(*inputs)).all()
        out = module.reference(*inputs)
        assert module.bytes_moved(**small) == sum(tensor.numel() * tensor.element_size() for tensor in (*inputs, out))


@pytest.mark.gpu
@pytest.mark.parametrize("words", ["rmsnorm v1", "rmsnorm v2", "rmsnorm v3", "rmsnorm v4", "rmsnorm v5", "transpose v1", "transpose v2"])
def test_the_sample_projects_versions_are_right_on_the_gpu(words: str) -> None:
    name, version = words.split()
    kernel = read_project(EXAMPLES / "project" / PROJECT_FILE).kernels[name]
    loaders = probe_module("loaders")
    module, own = (loaders.import_file(str(file)) for file in (kernel.file, kernel.versions[int(version[1:]) - 1].file(kernel)))
    for size in (1, 33, 1000):
        inputs = module.get_inputs(**{key: value if isinstance(value, str) else size for key, value in module.PARAMS.items()})
        torch.testing.assert_close(getattr(own, name)(*inputs), module.reference(*inputs))
