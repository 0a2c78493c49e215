"""A candidate's own kernels in its process: which it brought, and calls in which what they compute is withheld.

Own are Triton functions (launched through JITFunction.run), operators that the candidate registered, and functions of extension modules
that it built. Code that torch or Triton ship, and what Inductor generates, is not.
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .compiled_triton import name_of, python_function

MAX_NAMES = 64
MAX_NAME = 200

class OwnKernels:
    """Created before the candidate is imported; what is new afterwards may be its own."""

    def __init__(self) -> None:
        self.operators_before = _operators()
        self.libraries_before = {id(module) for module in _extension_modules()}
        self.namespaces: frozenset[str] = frozenset()
        """Of operators that the candidate's source names; torch's own modules register others when they are imported."""

    def triton(self) -> list[str]:
        """Names of Triton functions that neither Triton nor torch ship."""
        if "triton.runtime.jit" not in sys.modules:
            return []
        return sorted({name_of(item) for item in gc.get_objects() if type(item).__name__ == "JITFunction" and _is_own(item)})

    def operators(self) -> list[str]:
        """Operators that were registered since, in its namespaces, e.g. "mylib::scale"."""
        return sorted(name for name in _operators() - self.operators_before if name.partition("::")[0] in self.namespaces)

    def extensions(self) -> list[ModuleType]:
        """Extension modules that were loaded since, but what Inductor and Triton compile."""
        made = _compilers_folders()
        return [module for module in _extension_modules()
                if id(module) not in self.libraries_before and not str(module.__file__).startswith(made)]

    def describe(self) -> dict[str, list[str]]:
        """What the judge is told, cut to what it takes."""
        functions = [f"{module.__name__}.{name}" for module in self.extensions() for name in _functions(module)]
        return {kind: [name[:MAX_NAME] for name in names[:MAX_NAMES]]
                for kind, names in (("triton", self.triton()), ("operators", self.operators()), ("functions", functions))}


class Withholding:
    """From `start` on, own kernels of these names are not launched, or what they gave is made useless. It ends with the process.

    A Triton launch is left out, and so is a call of an extension's function that is given an address. An operator or another function
    runs; then what it returned is filled with NaN (zeros where the dtype has none), and what it wrote to its arguments is taken back; where
    that is nothing it counts as unseen. What a CUDA graph holds was launched at capture: it is not withheld.
    """

    def __init__(self, own: OwnKernels) -> None:
        self.own = own
        self.names: frozenset[str] = frozenset()
        self.counts: Counter[str] = Counter()
        self.unseen: set[str] = set()
        """Those that were called, and neither returned a tensor nor changed one that they were given."""
        self._mode: _Withhold | None = None

    def start(self, names: list[str]) -> None:
        """Withhold these from now on, instead of those before; the counts start again."""
        first = not self.names
        self.names, self.counts, self.unseen = frozenset(names), Counter(), set()
        if not first:
            return
        jit = sys.modules.get("triton.runtime.jit")
        if jit is not None:
            self._patch_triton(jit.JITFunction)
        for module in self.own.extensions():
            for name in _functions(module):
                setattr(module, name, self._wrapped(f"{module.__name__}.{name}", getattr(module, name)))
        if self.own.operators():
            self._mode = _Withhold(self)
            self._mode.__enter__()

    def _patch_triton(self, cls: Any) -> None:
        launch = cls.run

        def run(function: Any, *args: Any, **kwargs: Any) -> Any:
            name = name_of(function)
            if kwargs.get("warmup") or name not in self.names:
                return launch(function, *args, **kwargs)
            self.counts[name] += 1
            return None

        cls.run = run

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name not in self.names:
                return function(*args, **kwargs)
            if not any(_is_address(item) for item in (*args, *kwargs.values())):
                return self.spoil(name, function, args, kwargs)
            self.counts[name] += 1
            return None

        return call

    def spoil(self, name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Call it, and leave nothing of what it computed."""
        given = _tensors((args, kwargs))
        before = [tensor.detach().clone() for tensor in given]
        with torch.no_grad():
            result = function(*args, **kwargs)
            outputs = _tensors(result)
            written = _capturing() or any(_differ(tensor, old) for tensor, old in zip(given, before, strict=True))
            for tensor in outputs:
                tensor.detach().fill_(float("nan") if tensor.is_floating_point() or tensor.is_complex() else 0)
            for tensor, old in zip(given, before, strict=True):
                tensor.detach().copy_(old)
        if outputs or written:
            self.counts[name] += 1
        else:
            self.unseen.add(name)
        return result


class _Withhold(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, withholding: Withholding) -> None:
        super().__init__()
        self.withholding = withholding

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch/utils/_python_dispatch.py: True imports Dynamo at the first call (3 s)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.name()).partition(".")[0]  # OpOverload mylib.scale.default: "mylib::scale"
        if name not in self.withholding.names:
            return func(*args, **(kwargs or {}))
        return self.withholding.spoil(name, func, args, kwargs or {})


def _operators() -> set[str]:
    listed = getattr(torch._C, "_dispatch_get_all_op_names", None)
    return {str(name).partition(".")[0] for name in listed()} if listed is not None else set()


def _extension_modules() -> list[ModuleType]:
    """Compiled modules from outside the interpreter's own folders. Those of torch.utils.cpp_extension are in no list of modules."""
    own = tuple({path for key, path in sysconfig.get_paths().items() if key in ("stdlib", "platstdlib", "purelib", "platlib")})
    known: Iterable[Any] = gc.get_objects() if "torch.utils.cpp_extension" in sys.modules else list(sys.modules.values())
    return [item for item in known if type(item) is ModuleType
            and str(getattr(item, "__file__", None) or "").endswith((".so", ".pyd")) and not str(item.__file__).startswith(own)]


def _compilers_folders() -> tuple[str, ...]:
    """Where Inductor and Triton keep what they compile (torch/_inductor/runtime/cache_dir_utils.py, triton/runtime/cache.py)."""
    folders = [os.environ.get("TORCHINDUCTOR_CACHE_DIR"), os.environ.get("TRITON_CACHE_DIR"), os.environ.get("TRITON_HOME")]
    return (os.path.join(tempfile.gettempdir(), "torchinductor_"), os.path.expanduser("~/.triton"), *(item for item in folders if item))


def _tensors(value: Any) -> list[torch.Tensor]:
    """Those in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    held = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for item in held for tensor in _tensors(item)]


def _is_address(value: Any) -> bool:
    """Whether a number may be one: no size or index of a call comes near, but where the interpreter's heap lies low (Debian's, which is
    linked to a fixed place: 697512256)."""
    return isinstance(value, int) and not isinstance(value, bool) and (value >= 1 << 32 or _is_in_heap(value))


def _is_in_heap(value: int) -> bool:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return False
    spans = [[int(end, 16) for end in line.split()[0].split("-")] for line in lines if line.endswith("[heap]")]
    return any(low <= value < high for low, high in spans)


def _capturing() -> bool:
    """Whether a CUDA graph is being captured: nothing may be compared then."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether any bit is another."""
    try:
        return not torch.equal(*(tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in (one, other)))
    except RuntimeError:  # no plain tensors
        return True


def _functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if not name.startswith("_") and callable(value) and not isinstance(value, type)]


def _is_own(item: Any) -> bool:
    place = str(getattr(python_function(item), "__module__", "") or "")
    return place.partition(".")[0] not in ("triton", "torch")
