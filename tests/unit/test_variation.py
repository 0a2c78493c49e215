"""Shapes that change from call to call and generation loops: recognised, said, and passes that can't work refused; the rest stays right."""

import importlib.util
import itertools
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo.testing

from kernelwright.model.capture import ProbeResult
from kernelwright.model.errors import WorkloadFailed
from kernelwright.model.workload import ChangingInput, GenerationLoop, TensorSpec, WorkloadFacts, WorkloadRef
from kernelwright.optimize.generate import render_source, write_source
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.recognised import recognised
from kernelwright.probe import loaders, variation
from kernelwright.probe.run import carry_out
from optimizing import FakeStages, a_workload, context, run  # noqa: F401 a_workload: the fixture

DATA = Path(__file__).resolve().parents[1] / "data"
RAGGED = {"changing_inputs": (ChangingInput(path="", dims=(0,), shapes=((31, 16), (44, 16))),)}


def described(name: str, **params: str) -> dict:
    return variation.describe(loaders.load(str(DATA / f"{name}.py"), None, params, "cpu"), 0)


def refusals(**changes: object) -> dict[str, str]:
    """Pass -> reason, of those that are refused because of these facts alone."""
    plain, changed = context(), context(**changes)
    return {name: str(item.refusal(changed)) for name, item in CATALOGUE.items()
            if item.refusal(plain) is None and item.refusal(changed) is not None}


def test_shapes_and_values_that_follow_the_seed_are_measured():
    found = described("dynamic/ragged")
    [item] = found["changing_inputs"]
    assert (item["path"], item["dims"]) == ("", [0]) and len(item["shapes"]) > 1
    assert found["changing_values"] == [] and found["loop"] is None
    found = described("judge/varying")
    assert [item["path"] for item in found["changing_inputs"]] == ["0"] and found["changing_values"] == ["0.1", "0.2.sign"]
    plain = described("workloads/mlp")
    assert plain.pop("inputs_s") > 0
    assert plain == {"changing_inputs": [], "changing_values": [], "changing_structure": [], "loop": None, "backward_inside": False,
                     "changing_weights": [], "changing_attributes": [], "written_buffers": []}


def test_how_long_inputs_take_to_be_made_is_the_least_of_the_times(monkeypatch):
    workload = loaders.load(str(DATA / "workloads/mlp.py"), None, {}, "cpu")
    clock, waits = [0.0], iter([0.6, 0.25, 0.4, 0.3])
    monkeypatch.setattr(variation.time, "perf_counter", lambda: clock[0])

    def generated(seed: int) -> object:
        clock[0] += next(waits)
        return workload.raw_input

    monkeypatch.setattr(type(workload), "generated", lambda _self, seed: generated(seed))
    assert variation.describe(workload, 0)["inputs_s"] == pytest.approx(0.25)


class Counts(torch.nn.Module):
    """Binds attributes and a buffer anew in each call; writes another buffer, and fills a list, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Tanh()
        self.inner.register_buffer("mean", torch.zeros(()))
        self.inner.register_buffer("seen", torch.zeros(()))
        self.calls, self.kept, self.name = 0, [], "still"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.rows, self.sizes = 300 * x.shape[0], (x.shape, 0.5 * x.shape[0])
        self.last = x.detach()
        self.inner.mean = x.mean()
        self.inner.seen += 1
        self.kept.append(1)
        return self.inner(x)


def test_attributes_that_a_call_binds_anew_are_seen_and_refuse_what_works_on_a_copy():
    workload = loaders.load(str(DATA / "workloads/mlp.py"), None, {}, "cpu")
    workload.model, workload.args, workload.kwargs = Counts().eval(), (torch.zeros(3),), {}
    workload.step()
    found = variation.watched(workload)["changing_attributes"]
    assert found == ["calls", "inner.mean", "last"] and variation.watched(workload)["changing_attributes"] == found
    assert variation.watched(workload)["written_buffers"] == ["inner.seen"]
    normed = torch.nn.utils.weight_norm(torch.nn.Linear(3, 3)).eval()
    workload.model = torch.nn.Sequential(normed, torch.nn.utils.spectral_norm(torch.nn.Linear(3, 3))).eval()
    assert variation.watched(workload)["changing_attributes"] == []
    refused = refusals(changing_attributes=("calls", "inner.mean"))
    assert set(refused.values()) == {
        "a call sets attributes of the model (calls, inner.mean), and beside this the model would not have them"}
    assert {"channels_last", "cuda_graph", "direct_calls", "fold_conv_bn"} <= refused.keys(), sorted(refused)
    [words] = recognised(context(changing_attributes=("calls", "inner.mean")))
    assert words.startswith("State in attributes: a call binds calls, inner.mean of the model anew")
    assert not refused.keys() & {"compile_default", "compile_max_autotune", "tf32", "no_grad", "cudnn_benchmark", "fuse_norms"}


def test_marked_dimensions_count_though_their_size_stays():
    assert described("dynamic/marked")["changing_inputs"] == [{"path": "", "dims": [0], "shapes": [[4, 8]]}]


def test_another_number_of_dimensions_and_another_structure():
    one, two = torch.zeros(2, 3), torch.zeros(6)
    assert variation.changing_inputs([one, two])[0]["dims"] is None
    assert variation.changing_inputs([one, one.int()])[0]["dims"] is None
    assert variation.changing_inputs([(one,), (one, two)]) == []
    assert variation.changing_structure([(one,), (one, two), (one, two, 3)]) == ["1", "2"]
    assert variation.changing_structure([{"a": one, "b": two}, {"b": two, "a": one}]) == ["a", "b"]
    assert variation.changing_structure([(one, 2), (two, 3)]) == []
    assert variation.changing_structure([(one, two), (one, None)]) == variation.changing_structure([(one, 3), (one, None)]) == ["1"]


def test_what_calls_write_into_their_inputs_is_no_structure_that_follows_the_seed(tmp_path):
    file = tmp_path / "messages.py"
    file.write_text("""
import torch

class Net(torch.nn.Module):
    def forward(self, batch):
        batch["h"] = batch["x"] + 1
        batch["seen"] = batch.get("seen", []) + [batch["h"]]
        return batch["h"]

def get_model_and_input():
    return Net().eval(), ({"x": torch.randn(2, 3)},)
""")
    workload = loaders.load(str(file), None, {}, "cpu")
    for _ in range(3):
        workload.step()
    found = variation.describe(workload, 0)
    assert found["changing_structure"] == [] and found["changing_inputs"] == []


@pytest.mark.parametrize(("steps", "stop", "expected"), [
    ("8", "1", {"module": "decoder", "calls": 8, "grows": (4, 11), "reads": 8}),
    ("8", "0", {"module": "decoder", "calls": 8, "grows": (4, 11), "reads": 0}),
    ("2", "1", None),
])
def test_a_generation_loop_is_seen(steps, stop, expected):
    assert described("dynamic/generate", steps=steps, stop=stop)["loop"] == expected


def test_layers_used_again_and_growing_channels_are_no_generation():
    shared = torch.nn.Linear(8, 8)

    class Tied(torch.nn.Module):
        def forward(self, x):
            for _ in range(12):
                x = shared(x)
            return x

    assert variation.watched(_loaded(Tied(), torch.randn(2, 8)))["loop"] is None
    widths = (8, 16, 24, 32, 40)
    growing = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths)))
    assert variation.watched(_loaded(growing, torch.randn(2, 8)))["loop"] is None


def _loaded(model: torch.nn.Module, x: torch.Tensor) -> loaders.LoadedWorkload:
    return loaders.LoadedWorkload(path="w.py", form="model", version=None, versions=(), params={}, module=sys, model=model, raw_input=x,
                                  args=(x,), kwargs={}, device="cpu")


def test_what_holds_for_one_shape_is_refused_with_the_reason():
    found = refusals(**RAGGED)
    assert {"cuda_graph", "compile_reduce_overhead", "compile_max_autotune", "cudnn_benchmark"} <= found.keys()
    assert all(reason.startswith("input shapes change from call to call") for reason in found.values()), found
    kept = {"no_grad", "compile_default", "compile_max_autotune_no_cudagraphs", "channels_last", "fold_conv_bn", "tf32", "bf16"}
    assert not kept & found.keys()
    values = refusals(changing_values=("0.1",))
    assert "fold_conv_bn" in values and "compile_default" not in values and "plain values" in values["cuda_graph"]
    other = refusals(changing_inputs=(ChangingInput(path="", dims=None, shapes=((2,), (2, 3))),))
    assert "no_grad" in other and "number of dimensions" in other["no_grad"]


def test_a_generation_loop_that_reads_values_is_not_captured_and_one_that_does_not_is():
    reading = GenerationLoop(module="decoder", calls=8, grows=(4, 11), reads=8)
    found = refusals(loop=reading)
    assert {"cuda_graph", "compile_reduce_overhead", "compile_max_autotune"} <= found.keys()
    assert all(reason.startswith("a generation loop: ") for reason in found.values()) and "compile_default" not in found
    assert "cuda_graph" not in refusals(loop=reading.model_copy(update={"reads": 0}))
    [words] = recognised(context(loop=reading))
    assert words.startswith("Generation loop: one call runs `decoder` 8 times, sizes grow from 4 to 11, the host reads 8 values on the way")
    [words] = recognised(context(**RAGGED))
    assert words.startswith("Dynamic shapes: the input changes in dimension 0 (seen: 31x16, 44x16).")


@pytest.mark.parametrize("name", ["sdpa_backend", "pad_to_tiles", "fuse_conv_relu", "fuse_linear_activation"])
def test_a_pass_that_times_kernels_in_the_graph_is_refused_where_sizes_grow(name):
    operators = ("aten::linear", "aten::relu", "aten::scaled_dot_product_attention", "aten::cudnn_convolution")
    loop = GenerationLoop(module="decoder", calls=8, grows=(4, 11), reads=8)
    assert CATALOGUE[name].refusal(context(operators=operators)) is None
    assert "this measures at one of them" in CATALOGUE[name].refusal(context(operators=operators, loop=loop))
    same_sizes = loop.model_copy(update={"grows": None})
    assert CATALOGUE[name].refusal(context(operators=operators, loop=same_sizes)) is None


@pytest.mark.parametrize(("changes", "word", "gone"), [
    ({"already_compiled": True}, "Already compiled: ", set()),
    ({"already_compiled": True, "compiled_inside": True}, "Already compiled, from inside", {"compile_default", "compile_max_autotune"}),
    ({"dtype": "bfloat16"}, "Already in bfloat16", {"tf32", "bf16", "bf16_autocast"}),
    ({"training": True}, "Training step: a call is its forward and backward together", {"cuda_graph", "fold_conv_bn", "no_grad"}),
])
def test_what_was_done_already_is_said_and_not_done_again(changes, word, gone):
    [words] = recognised(context(**changes))
    assert words.startswith(word) and gone <= refusals(**changes).keys()


def test_a_workload_that_replays_its_own_graph_is_not_captured_again():
    graphed = context(operators=("cudaGraphLaunch",))
    assert "replays CUDA graphs" in CATALOGUE["cuda_graph"].refusal(graphed) and recognised(graphed)[0].startswith("Already graphed")


def test_the_report_says_what_was_recognised_under_its_result(workload):
    report = run(workload, FakeStages({}, **RAGGED)).report
    text, page = report.read_text(), report.with_suffix(".html").read_text()
    assert all("Dynamic shapes: the input changes in dimension" in one and "other shapes were not seen" not in one for one in (text, page))
    assert text.index("Dynamic shapes") < text.index("## Before and after") and "input shapes change from call to call" in text


def test_random_numbers_in_a_call_are_told_with_what_they_mean_for_the_compiler():
    drawn = ("aten::dropout", "aten::bernoulli_", "aten::native_dropout", "aten::addmm", "aten::normalize")
    [words] = recognised(context(operators=drawn))
    assert words.startswith("Random numbers in the call (aten::bernoulli_, aten::native_dropout): code of torch.compile draws others")
    assert words.endswith("call `.eval()` in the workload.")
    [_training, words] = recognised(context(operators=drawn, training=True))
    assert words.endswith("gives what the original does: these were left out.")
    [words] = recognised(context(operators=("aten::multinomial", "aten::normal_", "aten::exponential_")))
    assert words.endswith("(aten::exponential_, aten::multinomial, aten::normal_): a candidate must draw the same.")
    assert recognised(context(operators=("aten::dropout", "aten::addmm", "mine::randn", "aten::normal_of"))) == []


def test_compile_modes_are_refused_where_they_draw_other_numbers_and_only_there():
    def refused(*operators: str) -> set[bool]:
        known = context(operators=("aten::addmm", *operators))
        return {bool(CATALOGUE[name].refusal(known)) for name in ("compile_default", "compile_max_autotune_no_cudagraphs")}

    for replaced in (["native_dropout"], ["dropout", "bernoulli_"], ["bernoulli"], ["rand_like", "uniform_"], ["randn"], ["randint"]):
        assert refused(*(f"aten::{name}" for name in replaced)) == {True}, replaced
    for same in (["dropout"], ["bernoulli_"], ["multinomial", "exponential_"], ["normal_"], ["uniform_"], ["randperm"], ["random_"]):
        assert refused(*(f"aten::{name}" for name in same)) == {False}, same
    known = context(operators=("aten::addmm", "aten::native_dropout"))
    assert CATALOGUE["channels_last"].refusal(known) == CATALOGUE["channels_last"].refusal(context(operators=("aten::addmm",)))


def test_which_random_numbers_inductor_replaces():
    values = torch.randn(32, 32)

    def replaced(x):
        return torch.nn.functional.dropout(x, 0.3, True), torch.rand_like(x), torch.bernoulli(torch.full_like(x, 0.3))

    def same(x):
        return torch.empty_like(x).uniform_(), torch.empty_like(x).normal_(), torch.multinomial(x.softmax(-1), 1), \
            torch.empty_like(x).bernoulli_(0.3), torch.empty_like(x).random_(0, 100)

    for function, equal in ((replaced, False), (same, True)):
        torch._dynamo.reset()
        compiled = torch.compile(function)
        compiled(values)
        drawn = []
        for one in (function, compiled):
            torch.manual_seed(0)
            drawn.append(one(values))
        assert [torch.equal(*pair) for pair in zip(*drawn, strict=True)] == [equal] * len(drawn[0])


def optimized(tmp_path: Path, names: tuple[str, ...], backend: object = None, **changes: object):
    """The module of an optimized.py made of these passes, torch.compile's backend replaced."""
    known = WorkloadFacts.model_validate({
        "form": "model", "version": None, "params": {}, "inputs": (TensorSpec(path="", shape=(31, 16), dtype="float32", device="cpu"),),
        "outputs": (), "training": False, "dtype": "float32", "parameter_count": 1, "parameter_bytes": 4, "already_compiled": False,
        **changes})
    text = render_source(WorkloadRef(path=DATA / "dynamic" / "ragged.py", name="ragged"), known, [CATALOGUE[name] for name in names],
                         device="cpu", file_name="optimized.py", standalone=True)
    spec = importlib.util.spec_from_file_location("generated_for_variation", write_source(tmp_path / "optimized.py", text))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if backend is not None:
        module.compile_default.__defaults__ = (backend,)
    return module


def test_one_compiled_program_serves_all_sizes(tmp_path):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    made = optimized(tmp_path, ("no_grad", "compile_default"), counter, **RAGGED)
    assert made.SHAPES == {"input": (None, 16)}
    model, x = loaders.load(str(DATA / "dynamic" / "ragged.py"), None, {}, "cpu").model, torch.randn(31, 16)
    fast = made.optimize(model, x)
    for rows in (31, 44, 23, 57):
        given = torch.randn(rows, 16)
        torch.testing.assert_close(fast(given), model(given))
    assert counter.frame_count == 1, "no compilation for a further size"
    fast(torch.randn(31, 16, 1)[:, :, 0])
    assert made.fits([torch.randn(9, 16)]) and not made.fits([torch.randn(31, 15)]) and not made.fits([torch.randn(31, 16, 2)])
    assert not made.fits([torch.randn(31, 16).double()]) and not made.fits([])


def test_changing_numbers_reach_the_compiled_program(tmp_path):
    torch._dynamo.reset()
    made = optimized(tmp_path, ("no_grad", "compile_default"), "eager", changing_values=("0.1",))

    def model(x, factor):
        return x * factor

    x = torch.randn(31, 16)
    fast = made.optimize(model, (x, 2.0))
    for factor in (2.0, 3.0, 0.5):
        torch.testing.assert_close(fast(x, factor), x * factor)
    assert made.FREE_VALUES == ("0.1",)


def test_a_generation_loop_stays_right_under_the_compile_passes(tmp_path):
    torch._dynamo.reset()
    made = optimized(tmp_path, ("no_grad", "compile_default"), "eager",
                     inputs=(TensorSpec(path="", shape=(1, 4), dtype="int64", device="cpu"),))
    workload = loaders.load(str(DATA / "dynamic" / "generate.py"), None, {}, "cpu")
    fast = made.optimize(workload.model, workload.raw_input)
    for _ in range(2):
        torch.testing.assert_close(fast(*workload.args), workload.model(*workload.args))


def test_a_number_of_inputs_that_follows_the_seed_ends_the_run_with_one_line(workload):
    assert set(described("dynamic/several")["changing_structure"]) in ({"2"}, {"2", "3"}, {"2", "3", "4"})
    stages = FakeStages({}, changing_structure=("2", "3", "4"))
    with pytest.raises(WorkloadFailed, match=r"\(inputs 2, 3, 4 are not the same in every call\), so no candidate can be judged") as caught:
        run(workload, stages)
    assert (caught.value.code, caught.value.exit_code, caught.value.where) == ("inputs_vary", 4, str(workload.path)) and not stages.judged
    [report] = workload.path.parent.rglob("report.md")
    assert "Changing structure: inputs 2, 3, 4 are not the same in every call." in report.read_text()
    assert "Mend: return the same structure under every seed" in report.read_text()


def test_the_probe_reports_them_when_asked(tmp_path):
    request = {"action": "describe", "device": "cpu", "out_dir": str(tmp_path), "workload": {
        "path": str(DATA / "dynamic" / "generate.py"), "params": {"steps": "8", "stop": "1"}}}
    assert carry_out(request)["facts"].get("loop") is None
    result = ProbeResult.model_validate(carry_out({**request, "variation": True}))
    assert result.facts.loop == GenerationLoop(module="decoder", calls=8, grows=(4, 11), reads=8) and not result.warnings
