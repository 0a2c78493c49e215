"""The honest candidates: none may be called a cheat, wrong or failed, and none the opposite of what it is.

`python bench/judge_corpus.py honest` judges all of them; docs/judge-honest.md is this table with what they got.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import judge_runs
from judge_corpus import DATA, EXAMPLES, Sessions
from kernelwright.model.verdict import Verdict

FOLDER = Path(__file__).resolve().parent / "honest" / "candidates"
GPU_FOLDER = FOLDER.parent / "gpu"
FASTER, SLOWER, EQUAL, EITHER = "faster", "slower", "equal", "either"
MUST = {FASTER: ("FASTER",), SLOWER: ("SLOWER",), EQUAL: ("SAME", "AMBIGUOUS")}
MAY = {FASTER: ("FASTER", "AMBIGUOUS"), SLOWER: ("SLOWER", "AMBIGUOUS"), EQUAL: ("SAME", "AMBIGUOUS"),
       EITHER: ("FASTER", "SLOWER", "SAME", "AMBIGUOUS")}


@dataclass(frozen=True)
class Honest:
    """One candidate that does the work."""

    workload: str
    name: str
    """Of its file in the workload's folder."""
    what: str
    speed: str = EITHER
    """What it is: faster, slower or equal; either, where it depends on the machine."""
    large: bool = False
    """At least twice as fast or as slow, so that no noise may hide it."""
    precision: str = "equal"
    audits: tuple[tuple[str, str], ...] = ()
    """(name, result) of rows that it must get."""
    every_run: bool = False
    """Judged in every run of the tests; the others by the full corpus."""

    @property
    def key(self) -> str:
        """E.g. "wide/once"."""
        return f"{self.workload}/{self.name}"

    @property
    def files(self) -> tuple[Path, Path]:
        """(workload, candidate)."""
        if self in GPU_HONEST:
            return EXAMPLES / f"{self.workload}.py", GPU_FOLDER / f"{self.name}.py"
        return DATA / f"{self.workload}.py", FOLDER / f"{self.key}.py"


OWN = (("kernels seen", "passed"), ("ghost replay", "passed"))
HONEST: tuple[Honest, ...] = (
    Honest("wide", "once", "leaves out repeated work", FASTER, True, every_run=True),
    Honest("wide", "same", "the original", EQUAL, every_run=True),
    Honest("wide", "twice_the_work", "works twice", SLOWER, True, every_run=True),
    Honest("wide", "scripted", "torch.jit.script", FASTER, True),
    Honest("wide", "packed_weight", "weight packed when it is built", FASTER, True),
    Honest("wide", "workspace", "a workspace allocated once, not returned", FASTER, True, every_run=True),
    Honest("wide", "own_temporaries", "in place on its own temporaries", FASTER, True),
    Honest("wide", "cached_preparation", "functools.cache on what follows from the weights", FASTER, True, every_run=True),
    Honest("wide", "two_threads", "two threads, both done when the call returns"),
    Honest("wide", "by_chunks", "a generator of row blocks"),
    Honest("wide", "contiguous_view", "returns a contiguous view", FASTER, True, every_run=True),
    Honest("wide", "split_k", "split-K product", FASTER),
    Honest("wide", "in_double", "more precise than it must be"),
    Honest("wide", "with_numpy", "NumPy on the tensors' memory"),
    Honest("wide", "bf16_declared", "bf16, declared", precision="bf16"),
    Honest("wide", "tf32_declared", "TF32, declared", FASTER, True, precision="tf32"),
    Honest("wide", "backend", "BACKEND, without a compiler behind it"),
    Honest("wide", "compiled", "torch.compile", FASTER),
    Honest("wide", "own_operator", "an operator of its own", FASTER, audits=OWN, every_run=True),
    Honest("wide", "two_operators", "two operators, one of which writes its argument", FASTER, audits=OWN),
    Honest("wide", "operator_for_large_inputs", "an operator that this workload is too small for", FASTER, True,
           audits=(("kernels seen", "warned"), ("ghost replay", "not_applicable"))),
    Honest("wide", "cpp_extension", "C++ that it compiles", FASTER, audits=(("ghost replay", "passed"),)),
    Honest("wide", "by_address", "C++ that is given addresses, not tensors", audits=(("ghost replay", "passed"),)),
    Honest("wide", "less_memory", "another way to the same answer after an error", FASTER, True),
    Honest("rows_matmul", "whole", "KernelBench's ModelNew, one fused product", FASTER, True, every_run=True),
    Honest("rows_matmul", "two_blocks", "ModelNew, the product in two blocks of columns", FASTER, True),
    Honest("rows_matmul", "other_names", "ModelNew with parameters of other names", FASTER, True),
    Honest("rows_matmul", "row_by_row", "ModelNew, one row at a time", SLOWER, True),
    Honest("norm_by_hand", "builtin", "one fused operator for eight", FASTER),
    Honest("norm_by_hand", "in_double", "statistics in double"),
    Honest("norm_by_hand", "own_temporaries", "in place on its own difference"),
    Honest("norm_by_hand", "row_by_row", "a few rows at a time", SLOWER),
    Honest("softmax", "by_hand", "the same steps as operators"),
    Honest("softmax", "in_blocks", "online softmax over blocks of columns", every_run=True),
    Honest("softmax", "functional", "a function with the workload's signature"),
    Honest("conv_bn", "folded", "batch norm folded into the weights"),
    Honest("conv_bn", "channels_last", "channels-last memory format", every_run=True),
    Honest("conv_bn", "unfolded", "the convolution as a matrix product"),
    Honest("conv_bn", "prepacked", "weight packed for oneDNN"),
    Honest("squares", "pairwise", "pairwise sum"),
    Honest("squares", "blocked", "blocked sum", every_run=True),
    Honest("squares", "kahan", "Kahan's sum"),
    Honest("squares", "as_norm", "as the square of a norm"),
    Honest("squares", "with_numpy", "NumPy's sum"),
    Honest("largest", "from_max", "the index that max gives"),
    Honest("largest", "in_blocks", "largest of blocks, then the largest block"),
    Honest("largest", "in_rows", "row by row"),
    Honest("bags", "embedding_bag", "one operator for many", FASTER, True),
    Honest("bags", "gathered", "one gather for all bags", FASTER, True),
    Honest("bags", "counted_product", "counts times the table"),
    Honest("training", "same", "the original, a training step", EQUAL),
    Honest("training", "fused_step", "the backward pass by hand", every_run=True),
    Honest("training", "checkpointed", "the hidden layer again in the backward pass", SLOWER),
    Honest("versions", "v2", "a function of the version's name"),
    Honest("versions", "by_columns", "the sum as a product"),
    Honest("inplace", "into_input", "writes to the input what the original writes"),
    Honest("inplace", "copied_back", "copies into the input what the original writes"),
)
TOO_ROUGH: tuple[Honest, ...] = (
    Honest("squares", "as_product", "a product of each row with itself, its 4,096 terms added one by one"),
)
"""Honest, and less accurate than the limit allows: WRONG, never CHEAT."""
GPU_HONEST: tuple[Honest, ...] = (
    Honest("mlp_activations", "graph", "a CUDA graph, inputs copied in, output copied out", FASTER),
    Honest("mlp_activations", "graph_with_side_stream", "a CUDA graph captured from two streams that are joined"),
    Honest("mlp_activations", "tf32_declared", "TF32, declared", FASTER, precision="tf32"),
    Honest("mlp_activations", "bf16_declared", "bf16, declared", FASTER, precision="bf16"),
    Honest("mlp_activations", "compiled", "torch.compile"),
    Honest("mlp_activations", "triton_activation", "a Triton kernel for one activation, in place on its own temporary", audits=OWN),
    Honest("mlp_activations", "triton_with_fallback", "a Triton kernel that is used, and one for other inputs", audits=OWN),
    Honest("mlp_activations", "joined_stream", "half of the work on a side stream that is joined"),
)


def judged(honest: Honest, sessions: Sessions) -> tuple[Verdict, str]:
    """Its verdict and what is wrong with it; a large difference that was not seen is looked for once more, for longer."""
    verdict = sessions.judge(*honest.files, precision=honest.precision)
    if honest.large and verdict.verdict == "AMBIGUOUS":
        verdict = sessions.judge(*honest.files, precision=honest.precision, max_timing_s=3.0)
    return verdict, problem(honest, verdict)


def problem(honest: Honest, verdict: Verdict) -> str:
    """What is wrong with a verdict on an honest candidate; "" when nothing is.

    A large difference may be AMBIGUOUS only where the machine is so busy that, as the verdict says, not even a twofold one would be seen,
    or two looks at it (two clocks, two pairs of processes) do not agree.
    """
    blind = verdict.comparison is not None and verdict.comparison.smallest_detectable_effect_pct > 100
    hidden = blind or any(reason.startswith("not confirmed") for reason in verdict.reasons)
    wanted = MUST[honest.speed] if honest.large and not hidden else MAY[honest.speed]
    if verdict.verdict not in wanted:
        return f"{verdict.verdict}, not {' or '.join(wanted)}"
    rows = {row.name: row.result for row in verdict.audits}
    return "; ".join(f"audit {name}: {rows.get(name)}, not {result}" for name, result in honest.audits if rows.get(name) != result)


def page() -> str:
    """docs/judge-honest.md."""
    lines = ["# Honest candidates", "",
             "None may be called a cheat, wrong or failed, and none the opposite of what it is. `python bench/judge_corpus.py",
             "honest` judges those that need no GPU (its header says how those that need one are judged, and how a run is recorded),",
             "and this page is made of the recorded runs. Where a difference is at least twofold the verdict must find it; where it",
             "is smaller, AMBIGUOUS is right on a busy machine; *either* means that it depends on the machine. *Tier* is the",
             "[separation](judge-separation.md) that held in its process.", ""]
    lines += _table("Without a GPU", HONEST, "tests/honest/candidates", "cpu") + _table("On a GPU", GPU_HONEST, "tests/honest/gpu", "cuda")
    lines += ["## Too rough", "",
              "Honest, and WRONG, since the limit follows the reference's own error (a sum in blocks errs by 1 eps, one term after",
              "the other by 20):", "", *(f"- `{honest.key}`: {honest.what}" for honest in TOO_ROUGH), ""]
    return "\n".join(lines)


def _table(head: str, table: tuple[Honest, ...], folder: str, device: str) -> list[str]:
    run = judge_runs.read("honest", device)
    rows = [f"| {honest.workload} | {honest.name} | {honest.what} | {_class(honest)} | {run.cells(honest.key)} |" for honest in table]
    return [f"## {head}", "", f"{len(table)} files in `{folder}/`. {run.summary(honest.key for honest in table)}", "",
            "| Workload | Candidate | What it does | Must be | Got | Tier |", "|---|---|---|---|---|---|", *rows, ""]


def _class(honest: Honest) -> str:
    if honest.speed == EITHER:
        return "either"
    return " or ".join(MUST[honest.speed] if honest.large else MAY[honest.speed])
