"""Two audits of a candidate that brings kernels of its own: that the profiler saw them run, and that the outputs need them.

Both rest on what the candidate's process says of itself, so they find what is careless or known, not what is written against them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..model.trace import Trace
from ..model.verdict import Audit
from .channel import WorkerFailed
from .exchange import Exchange
from .options import ReferenceFailed
from .replies import Done, OwnKernels, Withheld
from .results import RoundResult
from .rounds import Rounds
from .screening import Unread, parsed
from .untrusted import open_regular

SEEN = "kernels seen"
REPLAY = "ghost replay"
DOES_NOT_RUN = "without its kernels it does not run"
WINDOW_SAMPLES = 2
FIRST_ROUND = 1000
"""Rounds of the ghost replay have numbers from here on; their inputs were never computed with the kernels in place, so that no memory
holds the right answer by chance."""
MAX_SINGLE = 4
"""Kernels that are also withheld one at a time: each takes a round."""
MAX_NAMED = 6

_CUDA = re.compile(r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(?:static\s+|inline\s+)*void\s+"
                   r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w{1,100})\s*\(")
_LIBRARY = re.compile(r"TORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*(\w{1,60})\s*,")
_JIT = ("triton.jit", "triton.runtime.jit.jit", "triton.experimental.gluon.jit")
_DSL = ("cuda.tile.kernel", "cutlass.cute.kernel")
_OPERATOR = ("torch.library.custom_op", "torch.library.triton_op")
_BUILDERS = ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load", "cupy.RawKernel", "cupy.RawModule",
             "torch.cuda._compile_kernel")


@dataclass(frozen=True)
class Defined:
    """What a candidate's own file defines."""

    triton: tuple[str, ...] = ()
    dsl: tuple[str, ...] = ()
    """Functions that are kernels of cuTile or the CUTLASS DSL."""
    cuda: tuple[str, ...] = ()
    """Names of __global__ functions in its strings."""
    operators: tuple[str, ...] = ()
    """"mylib::scale", or "mylib::" where the file names the library alone."""
    builds: bool = False
    """It compiles C++ or CUDA."""

    def __bool__(self) -> bool:
        return bool(self.triton or self.dsl or self.cuda or self.operators or self.builds)


def defined_by(data: bytes) -> Defined:
    """Hand-written kernels in a source, by syntax tree; nothing where it cannot be read."""
    try:
        source = parsed(data)
    except Unread:
        return Defined()
    triton, dsl, operators, cuda, libraries = [], [], [], [], []
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef):
            for mark in node.decorator_list:
                name = source.called(mark) or source.dotted(mark)
                triton += [node.name] if name in _JIT else []
                dsl += [node.name] if name in _DSL else []
                operators += _first_text(mark) if name in _OPERATOR else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            cuda += _CUDA.findall(node.value)
            libraries += _LIBRARY.findall(node.value)
        elif source.called(node) == "torch.library.Library":
            libraries += _first_text(node)
    builds = any(source.called(node) in _BUILDERS for node in source.nodes)
    operators += [f"{library}::" for library in libraries]
    return Defined(_unique(triton), _unique(dsl), _unique(cuda), _unique(operators), builds)


def _first_text(call: ast.AST) -> list[str]:
    first = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return [first.value[:100]] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Found:
    """What the two audits found."""

    rows: tuple[Audit, ...]
    cheat: str | None = None
    """Where the outputs need none of the kernels."""
    usable: bool = True
    """The candidate's process can be asked for more: nothing is withheld there now."""


def audit(candidate: Path, reference: Exchange, mine: Exchange, rounds: Rounds) -> Found:
    """Both audits. What the candidate keeps between calls may be useless afterwards: nothing that decides may be asked of it.

    Raises OutOfTime; WorkerFailed of the reference only.
    """
    defined = _read(candidate)
    seen: Audit | None = None
    try:
        told = mine.ask("own_kernels", OwnKernels, namespaces=[name.partition("::")[0] for name in defined.operators])
        if not (defined or told.triton or told.operators or told.functions):
            none = "it brings no kernels of its own"
            return Found(tuple(Audit(name=name, result="not_applicable", detail=none) for name in (SEEN, REPLAY)))
        seen = _seen(defined, told, reference, mine)
        mine.ask("withhold", Done, names=[])  # it answers still
        replay, cheat = _replay((*told.triton, *told.operators, *told.functions), mine, rounds)
    except WorkerFailed as error:
        if error.role == "reference":
            raise
        rows = (seen,) if seen is not None else ()
        return Found((*rows, Audit(name=REPLAY, result="warned", detail=f"it {error.message}")), usable=False)
    try:
        mine.ask("withhold", Done, names=[])
    except WorkerFailed:
        return Found((seen, replay), cheat, usable=False)
    return Found((seen, replay), cheat, usable=replay.detail != DOES_NOT_RUN)


def _read(candidate: Path) -> Defined:
    try:
        with open_regular(candidate, follow=True) as file:
            return defined_by(file.read(1 << 20))
    except OSError:
        return Defined()


def _seen(defined: Defined, told: OwnKernels, reference: Exchange, mine: Exchange) -> Audit:
    try:
        _, trace = mine.record_window(WINDOW_SAMPLES)
    except WorkerFailed as error:
        return Audit(name=SEEN, result="warned", detail=f"it {error.message}")
    device = _unique((*defined.triton, *told.triton, *defined.dsl, *defined.cuda)) if trace.is_cuda else ()
    visible = _unique((*device, *defined.operators, *told.operators))
    if not visible:
        return Audit(name=SEEN, result="not_applicable", detail="its own functions leave no name in a recording of this device")
    ran = running(visible, trace)
    if ran:
        return Audit(name=SEEN, result="passed", detail=f"the profiler saw {_listed(ran)} run")
    names = _listed(visible)
    try:
        theirs = sequence(reference.record_window(WINDOW_SAMPLES)[1])
    except WorkerFailed:  # no recording, no comparison
        theirs = []
    if sequence(trace) == theirs:
        return Audit(name=SEEN, result="failed", detail=f"it falls back to the original: the profiler saw the original's own sequence of "
                                                        f"kernels and operators, and nothing of {names}")
    return Audit(name=SEEN, result="warned", detail=f"it defines kernels that never ran: the profiler saw nothing of {names}")


def running(names: Collection[str], trace: Trace) -> list[str]:
    """Those of the names that a recording has: operators as they are, kernels also as templates, or with the digits that Triton appends,
    or as cuTile and the CUTLASS DSL spell them."""
    kernels = {trace.device.name(row) for row in range(len(trace.device))}
    operators = {trace.operators.name(row) for row in range(len(trace.operators))}
    return [name for name in names
            if (any(op == name or (name.endswith("::") and op.startswith(name)) for op in operators) if "::" in name
                else any(re.search(_spelt(re.escape(name)), kernel) for kernel in kernels))]


def _spelt(name: str) -> str:
    """Pattern: a name as it is, as cuTile spells it (cuda/tile/compilation/_name_mangling.py: "name_Kt1_A1f32...") and as the CUTLASS DSL
    does (cutlass/base_dsl/dsl.py: "kernel_cutlass_name_tensorptr...")."""
    return rf"(?<!\w)(?:{name}(?![a-zA-Z0-9]|_[a-zA-Z])|{name}_Kt\d+_|kernel_cutlass_{name}(?![a-zA-Z0-9]))"


def sequence(trace: Trace) -> list[str]:
    """Kernels, or on the CPU operators, of the last recorded step in their order."""
    table = trace.device if trace.is_cuda else trace.operators
    start, end = int(trace.steps.start_ns[-1]), int(trace.steps.end_ns[-1])
    return [table.name(row) for row in range(len(table)) if start <= int(table.start_ns[row]) < end]


def _listed(names: Collection[str]) -> str:
    shown = [name.rstrip(":") for name in names][:MAX_NAMED]
    return ", ".join(shown) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")


def _replay(names: tuple[str, ...], mine: Exchange, rounds: Rounds) -> tuple[Audit, str | None]:
    def row(result: str, detail: str) -> Audit:
        return Audit.model_validate({"name": REPLAY, "result": result, "detail": detail})

    if not names:
        return row("not_applicable", "none of its kernels can be withheld"), None
    try:
        launched, right = _without(names, mine, rounds, 0)
        if not launched:
            unseen = [name for name in mine.ask("withheld", Withheld).unseen if name in names]
            if unseen:
                return row("warned", f"{_listed(unseen)} returned no tensor and changed none that was given: whether it computes anything "
                                     "that is used can't be told"), None
            return row("not_applicable", "its kernels were not launched one by one (not at all, or from a CUDA graph)"), None
        if right is None:
            return row("not_applicable", "the reference's own output is the same on other inputs"), None
        if right and _without(names, mine, rounds, 1)[1]:
            words = f"the outputs are right without {_listed(launched)}: nothing that it computes is used"
            return row("failed", words), f"ghost kernel: {words}"
        unneeded = []
        if 1 < len(launched) <= MAX_SINGLE:
            unneeded = [name for index, name in enumerate(launched) if _without((name,), mine, rounds, 2 + index)[1]]
    except WorkerFailed as error:
        if error.role == "reference":
            raise
        return row("passed", DOES_NOT_RUN), None
    except ReferenceFailed as error:
        return row("not_applicable", error.message), None
    if unneeded:
        return row("warned", f"without {_listed(unneeded)} the outputs are as right as with it"), None
    return row("passed", f"without {_listed(launched)} the outputs are wrong"), None


def _without(names: tuple[str, ...], mine: Exchange, rounds: Rounds, index: int) -> tuple[list[str], bool | None]:
    """The kernels that were withheld in a fresh round, and whether its outputs are right; None where they would be on any inputs."""
    mine.ask("withhold", Done, names=list(names))
    result = _fresh_round(rounds, FIRST_ROUND + index)
    launched = [name for name, count in mine.ask("withheld", Withheld).counts.items() if count and name in names]
    if rounds.results and result.expects_the_same(rounds.results[0]):
        return launched, None
    return launched, result.passed


def _fresh_round(rounds: Rounds, number: int) -> RoundResult:
    rounds.sharing.share(number)
    return rounds._round(number)
