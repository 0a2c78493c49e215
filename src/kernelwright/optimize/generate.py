"""Writes candidates and optimized.py: the rewrites' sources behind a guard, with no dependency on kernelwright."""

from __future__ import annotations

import ast
import keyword
import math
import pprint
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import jinja2

from .. import __version__
from ..judge.correctness import PRECISION_ORDER
from ..model.errors import BadInput
from ..model.files import write_text_atomic
from ..model.resources import resource
from ..model.workload import ParamValue, Precision, WorkloadFacts, WorkloadRef
from .layout import laid_out
from .needed import mentioned, needed
from .passes import in_order, with_carrier
from .passes.base import GRAPH_LEVELS, Pass

REWRITES = Path(__file__).resolve().parents[1] / "probe" / "rewrites"
_MARKS = re.compile(r"  # (?:type: ignore|noqa)[^\n]*")
_STANDALONE_IMPORTS = ("import copy", "import importlib.util", "import inspect", "import statistics", "import sys", "import time",
                       "from pathlib import Path", "from torch.utils._python_dispatch import _get_current_dispatch_mode")
SMOKE_LIMITS: dict[Precision, float] = {"equal": 5e-3, "tf32": 5e-3, "bf16": 5e-2}
"""Relative difference to the original above which `python optimized.py` fails: a smoke check with room for a baseline that
itself rounds to TF32 (2**-11 an operand); the judgement against float64 is the judge's."""


@dataclass(frozen=True)
class Source:
    """One rewrite file, taken apart."""

    imports: tuple[str, ...]
    title: str
    """What it does: the first sentence of its docstring."""
    functions: tuple[str, ...]
    """Everything else at its top level, in order: functions with their decorators, classes, constants, guarded imports."""
    helpers: tuple[str, ...]
    """The files beside it that it imports from (`from .graphs import ...`): they are copied too."""


@cache
def rewrite_source(name: str) -> Source:
    """Imports and definitions of probe/rewrites/NAME.py, without its relative imports. Raises OSError when there is none."""
    text = (REWRITES / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree)
    body = tree.body[1:] if docstring is not None else tree.body
    imports = [ast.unparse(node) for node in body if isinstance(node, ast.Import)]
    imports += [ast.unparse(node) for node in body if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module != "__future__"]
    definitions = [_segment(text, node) for node in body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    helpers = dict.fromkeys(str(node.module) for node in body if isinstance(node, ast.ImportFrom) and node.level == 1)
    title = " ".join((docstring or name).split()).partition(". ")[0].removesuffix(".")
    return Source(tuple(imports), title, tuple(_MARKS.sub("", definition) for definition in definitions), tuple(helpers))


def _segment(text: str, node: ast.stmt) -> str:
    """The source of a statement, with its decorators."""
    first = min((item.lineno for item in getattr(node, "decorator_list", ())), default=node.lineno)
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _helper_sources(names: Iterable[str]) -> dict[str, Source]:
    """The helper files that these files need, each after those that it needs itself."""
    found: dict[str, Source] = {}
    for name in names:
        if name not in found:
            source = rewrite_source(name)
            found |= {**_helper_sources(source.helpers), name: source}
    return found


def _copied(files: Mapping[str, Source], roots: Iterable[str]) -> dict[str, list[str]]:
    """The statements of each file that the root names lead to."""
    every = [(name, text) for name, source in files.items() for text in source.functions]
    kept = [every[place] for place in needed([text for _name, text in every], roots)]
    return {name: [text for home, text in kept if home == name] for name in files}


def render_source(
    workload: WorkloadRef, facts: WorkloadFacts, passes: Sequence[Pass], *, device: str, file_name: str = "",
    headline: Sequence[str] = (), standalone: bool = False,
) -> str:
    """The Python source of a candidate, or (standalone) of optimized.py. Passes are put in their order, innermost first."""
    ordered = in_order(with_carrier(passes))
    precision = lowest_precision(ordered)
    in_graph = [item for item in ordered if item.in_graph]
    files = _helper_sources(["trees", *(["graphs"] if in_graph else []), *(item.rewrite for item in ordered)])
    imports = {"import torch", "from typing import Any", "from collections.abc import Callable"}
    imports.update(_STANDALONE_IMPORTS if standalone else ())
    alters_model = facts.needs_gradients and any(item.copies_weights for item in ordered)
    imports.update({"import torch._dynamo"} if facts.changing_inputs and any(item.carrier for item in ordered) else ())
    weights = _weights(ordered, facts)
    imports.update({"import operator", "import weakref", "from torch.optim.optimizer import register_optimizer_step_post_hook"}
                   if weights == "copied" else ())
    # Another time, nothing may be faster.
    optional = [item for item in ordered if standalone and item.measures and not item.in_graph and not item.lenient]
    imports.update({"import contextlib", "import warnings"} if optional else ())
    edged = any(item.casts_edges for item in ordered) and any(item.copies_edges for item in ordered)
    own = {"leaves", *(["tensors_alone"] if not facts.changing_values else []),
           *(["map_tensors", "narrowed", "apart"] if edged else []), *(["map_tensors"] if standalone else []),
           *(["GraphBackend"] if in_graph else [])}
    copied = _copied(files, {*own, *(item.rewrite for item in ordered)})
    names = mentioned(text for texts in copied.values() for text in texts)
    imports.update(line for source in files.values() for whole in source.imports for line in _used(whole, names))
    why = {item.rewrite: item.why for item in ordered}
    helpers = [name for name in reversed(files) if name not in why]
    sections = laid_out(copied, [*why, *helpers])
    params = {name: _literal(value) for name, value in facts.params.items() if name.isidentifier() and not keyword.iskeyword(name)}
    return _template().render(
        title=_comment(f"{workload.name}: {', '.join(item.name for item in ordered)}. Written by kernelwright {__version__}."),
        headline=[_comment(line) for line in headline], imports=_sorted(line for line in imports if " torch" not in line),
        torch_imports=_sorted(line for line in imports if " torch" in line),
        workload=repr(str(workload.path)), workload_version=repr(facts.version), shapes=_shapes(facts), dtypes=_dtypes(facts),
        changing=any(item.dims for item in facts.changing_inputs), free_values=repr(facts.changing_values),
        device=repr(device), device_type=device, training=facts.training, grad_mode=grad_mode(facts), precision=precision,
        precision_literal=repr(precision),
        sections=[{"name": name, "why": _comment(item).removesuffix("."), "text": sections[name]} for name, item in why.items()],
        helpers=[{"name": name, "title": _comment(files[name].title), "text": sections[name]} for name in helpers if sections[name]],
        on_loading=sections[""],
        passes=[{"why": _comment(item.why), "rewrite": item.rewrite, "carrier": item.carrier, "casts": edged and item.casts_edges,
                 "copies": edged and item.copies_edges, "optional": item in optional,
                 "lenient": standalone and item.lenient} for item in ordered if not item.in_graph],
        optional=bool(optional),
        in_graph={level: [{"why": _comment(item.why), "rewrite": item.rewrite} for item in in_graph if item.level == level]
                  for level in GRAPH_LEVELS} if in_graph else {},
        compiles=any(item.carrier for item in ordered),
        weights=weights, writes_buffers=bool(facts.written_buffers), alters_model=alters_model, standalone=standalone, form=facts.form,
        file_name=_comment(file_name),
        signature=", ".join(f"{name}={value}" for name, value in params.items()),
        forwarded=", ".join(f"{name}={name}" for name in params),
        defaults=", ".join(f"{name}={value}" for name, value in params.items()), tolerance=SMOKE_LIMITS[precision],
    )


def write_source(path: Path, text: str) -> Path:
    """Write a generated file after checking that it is Python. Raises BadInput otherwise (a fault of ours, named)."""
    try:
        compile(text, str(path), "exec")
    except (SyntaxError, ValueError) as error:
        raise BadInput("bad_source", f"the generated file is not valid Python: {error}", where=str(path),
                       fix="please report this with the file") from error
    return write_text_atomic(path, text)


def lowest_precision(passes: Sequence[Pass]) -> Precision:
    """The lowest precision among the passes: equal, then tf32, then bf16."""
    return max((item.precision for item in passes), key=PRECISION_ORDER.index, default="equal")


def grad_mode(facts: WorkloadFacts) -> str:
    """What GRAD_MODE says of the calls that a file is made for."""
    return "training" if facts.training else "backward inside" if facts.backward_inside else "inference"


def _weights(passes: Sequence[Pass], facts: WorkloadFacts) -> str:
    """How the result depends on the weights: "live" (read at each call), "fixed" (their addresses), "copied" (their values)."""
    fixed = any(item.fixes_addresses for item in passes)
    if not facts.needs_gradients and any(item.copies_weights for item in passes):
        return "copied"
    return "fixed" if fixed else "live"


def _literal(value: ParamValue) -> str:
    """Python source of a parameter's value. Nested values are recorded as the text that str() made of them: it is their source again.

    A text parameter that reads like one is turned back into text by the generated file, which sees the workload's own default.
    """
    if isinstance(value, str):
        try:
            nested = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return repr(value)
        return value if isinstance(nested, (tuple, list, dict, set)) and str(nested) == value else repr(value)
    return repr(value) if not isinstance(value, float) or math.isfinite(value) else f"float({str(value)!r})"


def _shapes(facts: WorkloadFacts) -> str:
    """None stands for a size that changes from call to call."""
    changing = {item.path: item.dims or () for item in facts.changing_inputs}
    shapes = {spec.path or "input": tuple(None if dim in changing.get(spec.path, ()) else size for dim, size in enumerate(spec.shape))
              for spec in facts.inputs}
    return pprint.pformat(shapes, width=120, sort_dicts=False)


def _dtypes(facts: WorkloadFacts) -> str:
    return pprint.pformat({spec.path or "input": spec.dtype for spec in facts.inputs}, width=120, sort_dicts=False)


def _comment(text: str) -> str:
    """One printable line that can end neither a comment nor a docstring."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line.replace("\\", "/").replace('"', "'")[:200]


def _used(line: str, names: set[str]) -> list[str]:
    """What of an import these names need, a line a name. Submodules of torch stay: their import is what is needed."""
    module, _import, parts = line.partition(" import ")
    if not parts:
        return [line] if line.removeprefix("import ").split(" as ")[-1].split(".")[0] in names else []
    return [f"{module} import {part}" for part in parts.split(", ") if part.split(" as ")[-1] in names]


def _sorted(lines: Iterable[str]) -> list[str]:
    """Plain imports first; of those from one module one line."""
    plain, parts = set(), dict[str, set[str]]()
    for line in lines:
        module, _import, names = line.partition(" import ")
        if names:
            parts.setdefault(module, set()).update(names.split(", "))
        else:
            plain.add(line)
    return [*sorted(plain), *(f"{module} import {', '.join(sorted(names))}" for module, names in sorted(parts.items()))]


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    # Not the documents' environment: that one makes values inert for Markdown, and here they are Python source.
    loader = jinja2.FileSystemLoader(str(resource("templates")))
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True,
                                     lstrip_blocks=True, keep_trailing_newline=True)
    return environment.get_template("optimized.py.j2")
