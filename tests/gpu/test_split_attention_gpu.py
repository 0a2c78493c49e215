"""float32 attention as products of parts on a GPU: right in every mode and shape, no less exact than torch's, and how fast (pytest -s)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from example_models import example
from kernelwright.probe.rewrites.attention import Attention, SplitAttention
from kernelwright.probe.rewrites.attention_choice import AttentionCall, AttentionChooser, attention_tiles
from kernelwright.probe.rewrites.attention_modules import replaced_attention
from kernelwright.probe.rewrites.compile_default import compile_default
from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.float32_flags import float32_flags, products_as, under_flags
from kernelwright.probe.rewrites.freeze_weights import freeze_weights
from kernelwright.probe.rewrites.graphs import GraphBackend
from kernelwright.probe.rewrites.measuring import errors, seconds
from kernelwright.probe.rewrites.scaled_fp16_attention_by_hand import scaled_fp16_attention_by_hand
from kernelwright.probe.rewrites.sdpa_substitution import sdpa_substitution
from kernelwright.probe.rewrites.split_attention import split_attention
from kernelwright.probe.rewrites.split_attention_by_hand import split_attention_by_hand
from kernelwright.probe.rewrites.split_products import split_products

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu
MODES = ("fp16x3", "bf16x6", "bf16x9", "tf32x3")
SHAPES = {"the example": (8, 8, 512, 512, 64, False), "gpt2": (4, 12, 128, 128, 64, True), "odd": (2, 3, 77, 130, 40, False),
          "odd and causal": (1, 3, 130, 77, 80, True), "one query": (2, 4, 1, 300, 128, False), "long": (1, 2, 2048, 2048, 128, True)}


def tensors(batch: int, heads: int, rows: int, columns: int, depth: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(batch, size, heads, depth, device="cuda").transpose(1, 2) for size in (rows, columns, columns)]


@torch.no_grad()
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_mode_errs_by_no_more_than_float32(mode: str, shape: str) -> None:
    *sizes, causal = SHAPES[shape]
    call = AttentionCall(*tensors(*sizes), is_causal=causal)
    library_s = seconds(call.library)
    for tile in attention_tiles(sizes[-1], mode):
        how = Attention(mode, tile)
        ours, library = call.sampled_errors(call.ours(how), call.out)
        times = f"{seconds(lambda: call.ours(how)) * 1e6:.1f} us, torch {library_s * 1e6:.1f} us"  # noqa: B023 called at once
        print(f"{shape} {how.name}: {times}; error {ours[0]:.1e} largest {ours[1]:.1e}, torch {library[0]:.1e} {library[1]:.1e}")
        assert ours[0] <= 1.2 * library[0], (how.name, ours, library)
        if sizes[2] > 1:
            assert call.ours(how).stride() == call.out.stride()


@torch.no_grad()
@pytest.mark.parametrize("shape", [*(name for name in SHAPES if name != "one query"), "minGPT"])
def test_one_product_errs_by_no_more_than_tf32(shape: str) -> None:
    *sizes, causal = {**SHAPES, "minGPT": (128, 8, 512, 512, 96, True)}[shape]
    call = AttentionCall(*tensors(*sizes), is_causal=causal)
    library_s = seconds(call.library)
    for tile in attention_tiles(sizes[-1], "fp16x1"):
        how = Attention("fp16x1", tile)
        ours, tf32 = call.sampled_errors(call.ours(how), tf32=True)
        times = f"{seconds(lambda: call.ours(how)) * 1e6:.1f} us, torch {library_s * 1e6:.1f} us"  # noqa: B023 called at once
        print(f"{shape} {how.name}: {times}; error {ours[0]:.1e} largest {ours[1]:.1e}, TF32 {tf32[0]:.1e} {tf32[1]:.1e}")
        assert ours[0] <= 1.1 * tf32[0], (how.name, ours, tf32)


@torch.no_grad()
def test_one_product_is_not_taken_where_the_library_takes_no_tf32() -> None:
    """One query is a product of a matrix and a vector."""
    batch, heads, rows, columns, depth, causal = SHAPES["one query"]
    call = AttentionCall(*tensors(batch, heads, rows, columns, depth), is_causal=causal)
    assert not AttentionChooser(("fp16x1",), tf32=True).as_exact(call, Attention("fp16x1", [64, 64, 4, 2, 0]))


@torch.no_grad()
@pytest.mark.parametrize("factors", [(1e3, 1e-3, 1.0), (1e-3, 1e-3, 1e3), (30.0, 3.0, 1e-3), (1e-18, 1e18, 1e18), (0.0, 1.0, 1.0)], ids=str)
def test_magnitudes(factors: tuple[float, float, float]) -> None:
    given = [tensor * factor for tensor, factor in zip(tensors(2, 4, 256, 256, 64), factors, strict=True)]
    given[1] = given[1] + given[1].abs().amax()  # shifted: all scores are large
    given[2][:, :, :, 3] = 0.5 * factors[2]  # a constant column
    call = AttentionCall(*given)
    for mode in ("fp16x3", "bf16x6"):
        ours, library = call.sampled_errors(call.ours(Attention(mode, [64, 32, 4, 2, 0])), call.out)
        assert ours[0] <= max(1.2 * library[0], 2e-7), (mode, ours, library)


@torch.no_grad()
@pytest.mark.parametrize("mode", [*MODES, "fp16x1"])
def test_masks_shared_keys_and_queries_that_see_nothing(mode: str) -> None:
    q, k, v = tensors(2, 4, 100, 130, 64)
    seen = torch.rand(2, 1, 100, 130, device="cuda") > 0.4
    seen[1, 0, 7] = False
    added = torch.randn(4, 100, 130, device="cuda")
    added[1, 3], added[2, 4, 5:] = -float("inf"), torch.finfo(torch.float32).min
    module, limit = SplitAttention(Attention(mode, [64, 32, 4, 2, 0]), True), 1e-3 if mode == "fp16x1" else 5e-7
    for mask in (seen, added, seen[:, :, :1], added[0], added[:, :, :1]):
        exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), mask if mask.dtype == torch.bool else mask.double())
        assert errors(module(q, k, v, mask), exact)[0] < limit, tuple(mask.shape)
    exact = F.scaled_dot_product_attention(*(x.double() for x in (q, k[:, :2], v[:, :2])), scale=0.3, enable_gqa=True)
    assert errors(module(q, k[:, :2], v[:, :2], scale=0.3, enable_gqa=True), exact)[0] < limit
    wide = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k, v)]  # no stride of one at the end
    assert torch.equal(module(*wide), module(q, k, v))
    shifted = torch.empty(q.numel() + 1, device="cuda")[1:].view(2, 100, 4, 64).transpose(1, 2).copy_(q)  # not aligned
    assert torch.equal(module(shifted, k, v), module(q, k, v))


@torch.no_grad()
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_what_is_not_finite_stands_where_torch_has_it(value: float) -> None:
    for place in range(3):
        given = [x.clone() for x in tensors(1, 2, 64, 64, 64)]
        given[place][0, 1, 5, 3] = value
        call = AttentionCall(*given)
        ours = call.ours(Attention("fp16x3", [64, 32, 4, 2, 0]))
        print(f"{value} in {['query', 'key', 'value'][place]}: NaN ours {int(ours.isnan().sum())}, torch {int(call.out.isnan().sum())}")
        assert ours[0, 0].isfinite().all() and call.out[0, 0].isfinite().all()
        assert (ours.isfinite() <= call.out.isfinite()).all(), "nothing finite where torch has none"


@torch.no_grad()
@pytest.mark.parametrize("name", ["sdpa_attention", "gpt2"])
def test_examples_as_they_are_compiled_and_in_a_cuda_graph(name: str) -> None:
    torch.manual_seed(0)
    model, x = example(name)
    model.eval()
    fast = replaced_attention(model, (x,), {}, lambda call: Attention("fp16x3", [64, 32, 4, 2, 0]))
    exact = example(name)[0]
    exact.load_state_dict(model.state_dict())
    exact = exact.eval().double()(x if x.dtype == torch.int64 else x.double())
    limit = errors(model(x), exact)[0]
    both = split_products(fast, (x,), {})
    calls = {"eager": fast, "compiled": compile_default(fast, (x,), {}), "graph": cuda_graph(fast, (x,), {}),
             "with products": both, "with products, graph": cuda_graph(both, (x,), {}),
             "reduce-overhead": torch.compile(fast, mode="reduce-overhead")}
    for way, call in calls.items():
        found = max(errors(call(x).clone(), exact)[0] for _ in range(3))
        print(f"{name} {way}: {seconds(lambda: call(x)) * 1e6:.0f} us, error {found:.1e}; "  # noqa: B023 called at once
              f"torch {seconds(lambda: model(x)) * 1e6:.0f} us, {limit:.1e}")
        assert found <= 1.3 * limit, way


@torch.no_grad()
def test_the_example_through_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    model, x = example("sdpa_attention")
    began = time.perf_counter()
    fast = split_attention(model, (x,), {})
    first_s, began = time.perf_counter() - began, time.perf_counter()
    again = split_attention(model, (x,), {})
    print(f"chosen in {first_s:.1f} s, then in {time.perf_counter() - began:.1f} s")
    names = [[module.how.name for module in twin.modules() if isinstance(module, SplitAttention)] for twin in (fast, again)]
    print(f"{names[0]}: {seconds(lambda: fast(x)) * 1e6:.0f} us, torch {seconds(lambda: model(x)) * 1e6:.0f} us")
    assert names[0] == names[1] and len(names[0]) == 1
    assert seconds(lambda: fast(x)) < seconds(lambda: model(x))


class ByHand(torch.nn.Module):
    """As minGPT has it: scores in memory, a mask in a buffer."""

    def __init__(self, width: int, heads: int, rows: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width), heads
        self.register_buffer("seen", torch.tril(torch.ones(1, 1, rows, rows)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, width = x.size()
        q, k, v = (part.view(batch, rows, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(x).split(width, dim=2))
        scores = (q @ k.transpose(-2, -1)) / (width // self.heads) ** 0.5
        scores = scores.masked_fill(self.seen[:, :, :rows, :rows] == 0, float("-inf"))
        return self.out((F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(batch, rows, width))


def compare_by_hand(batch: int, ways: list[tuple[list, list]], room: float) -> None:
    """Ways (functional passes, Inductor's) to compile attention of 8 heads over 512 x 768 numbers: none errs by more than room times what
    torch does."""
    torch.manual_seed(0)
    model, x = ByHand(768, 8, 1024).cuda().eval(), torch.rand(batch, 512, 768, device="cuda")
    exact = ByHand(768, 8, 1024).cuda().eval()
    exact.load_state_dict(model.state_dict())
    exact = torch.cat([exact.double()(part.double()).float() for part in x.split(4)])
    limit, compiled = errors(model(x), exact)[0], torch.compile(model)
    print(f"torch {seconds(lambda: model(x)) * 1e6:.0f} us, {limit:.1e}; compiled {seconds(lambda: compiled(x)) * 1e6:.0f} us")
    for functional, inductor in ways:
        torch._dynamo.reset()
        backend = GraphBackend(functional, inductor=inductor)
        call = backend.checked(torch.compile(model, backend=backend))
        found = max(errors(call(x).clone(), exact)[0] for _ in range(3))
        words = " + ".join(one.__name__ for one in (*functional, *inductor))
        print(f"{words}: {seconds(lambda: call(x)) * 1e6:.0f} us, error {found:.1e}")  # noqa: B023 called at once
        assert found <= room * limit, words


@torch.no_grad()
def test_attention_by_hand_as_it_is_compiled() -> None:
    """With the mask as it is, and known to be causal: weights are frozen."""
    compare_by_hand(32, [([sdpa_substitution, *more], inductor) for more in ([], [split_attention_by_hand])
                         for inductor in ([], [freeze_weights])], room=1.3)


@torch.no_grad()
def test_attention_by_hand_at_tf32() -> None:
    """minGPT's shape in KernelBench: as one call, as three products, as one."""
    with under_flags(products_as(float32_flags(), True)):
        compare_by_hand(128, [([sdpa_substitution, *more], [freeze_weights])
                              for more in ([], [split_attention_by_hand], [scaled_fp16_attention_by_hand])], room=1.1)


@torch.no_grad()
def test_tiles_that_do_not_fit_are_noted_and_not_taken() -> None:
    chooser = AttentionChooser(("fp16x3",))
    call = AttentionCall(*tensors(1, 2, 512, 512, 128))
    assert chooser.time(call, Attention("fp16x3", [256, 256, 4, 4, 0])) == float("inf") and chooser.notes
