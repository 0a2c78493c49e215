"""A static look at a candidate's source: lines that a reader should see. A second opinion: no finding changes a verdict.

Everything here can be written so that it is not found, and most of it has honest uses. The reading is by syntax tree, in one pass; a
source that is too large or too deep for that is said to be unread.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..model.verdict import Audit
from .untrusted import open_regular

MAX_BYTES = 200_000
MAX_TOKENS = 40_000
MAX_DEPTH = 90
"""Open brackets, or unary operators in a row, beyond which the source is not parsed."""
MAX_LINES_NAMED = 6
NAME = "screening"

REASONS = {
    "patched torch": "it replaces a function that others call too",
    "patched timer": "it replaces a clock or a wait that timing relies on",
    "call stack": "its behaviour may depend on who calls it",
    "live objects": "it can reach objects that it was not given",
    "code from data": "what runs is not what the file shows",
    "raw memory or descriptors": "it can write where it was not asked to",
    "process or network": "it can leave its process",
    "files": "it may change files",
    "clock or chance": "which branch runs depends on the time or on chance",
    "counted calls": "its behaviour may change with the number of calls",
    "identity": "a result may be remembered by a tensor's address, id or version instead of its values",
    "values": "which branch runs depends on the values of the inputs",
    "fallback": "an error is caught and other code answers instead",
    "precision": "it lowers the precision, and declares no PRECISION",
    "surroundings": "its behaviour may depend on where it runs",
    "threads": "work may run beside the call that is timed",
    "streams": "work may run on a stream that nobody waits for",
    "device limits": "it changes a limit of the whole device",
    "judge": "it names the judge's own code",
    "tensor class": "a tensor of another class may compute later than it seems to",
    "exit": "it can end the process, or act when it ends",
}
"""Kind of finding -> why a reader may want to look."""

_CALLS: dict[str, tuple[str, ...]] = {
    "call stack": ("inspect.stack", "inspect.currentframe", "inspect.getouterframes", "inspect.trace", "sys._getframe",
                   "sys._current_frames", "traceback.extract_stack", "traceback.format_stack", "traceback.walk_stack", "sys.setprofile",
                   "sys.settrace"),
    "live objects": ("gc.get_objects", "gc.get_referrers", "gc.get_referents"),
    "code from data": ("marshal.loads", "pickle.loads", "types.CodeType", "types.FunctionType", "base64.b64decode", "base64.b85decode",
                       "base64.decodebytes", "codecs.decode", "zlib.decompress", "bytes.fromhex", "importlib.import_module"),
    "raw memory or descriptors": ("os.write", "os.pwrite", "os.dup", "os.dup2", "os.fdopen", "os.memfd_create", "mmap.mmap"),
    "process or network": ("os.fork", "os.forkpty", "os.system", "os.popen", "os.posix_spawn", "os.kill", "os.killpg", "pty.fork"),
    "files": ("os.remove", "os.unlink", "os.rename", "os.replace", "os.truncate", "os.mkfifo", "os.symlink", "os.link", "os.chmod",
              "shutil.rmtree", "shutil.copy", "shutil.copyfile", "shutil.move", "torch.save", "numpy.save", "pickle.dump"),
    "surroundings": ("os.getenv", "os.getppid", "os.getcwd", "os.uname", "socket.gethostname", "platform.node"),
    "exit": ("os._exit", "os.abort", "sys.exit", "atexit.register", "signal.signal"),
}
_MODULES: dict[str, tuple[str, ...]] = {
    "process or network": ("socket", "subprocess", "multiprocessing", "urllib", "http", "requests", "ftplib", "smtplib", "asyncio"),
    "threads": ("threading", "_thread", "concurrent", "queue"),
    "raw memory or descriptors": ("ctypes", "cffi", "mmap"),
    "judge": ("kernelwright", "kernelwright_probe"),
    "code from data": ("marshal",),
    "exit": ("atexit",),
}
_CLOCKS = ("time.", "random.", "secrets.", "numpy.random.", "datetime.", "os.urandom", "torch.rand", "torch.randn", "torch.randint")
_TIMERS = ("torch.cuda.Event", "torch.cuda.synchronize", "torch.cuda.Stream", "torch.cuda.current_stream", "torch.Event")
_OWN_FLAGS = ("torch.backends.", "torch._dynamo.config", "torch._inductor.config", "torch._functorch.config", "torch.compiler.config")
_LOW = ("bfloat16", "half")
_LOW_TYPES = ("torch.bfloat16", "torch.float16", "torch.half")
_DEVICE_WORDS = ("cudaDeviceSetLimit", "PersistingL2", "accessPolicyWindow", "AccessPolicyWindow", "cudaStreamSetAttribute")
_JUDGE_WORDS = ("kernelwright", "judge_worker", "judge_program", "judge_tensors")
_LOOKUPS = ("get", "setdefault", "pop", "add", "__contains__", "__getitem__")
_BROAD = ("Exception", "BaseException", "RuntimeError")


@dataclass(frozen=True)
class Finding:
    """A line that a reader should see, and why."""

    kind: str
    line: int


@dataclass
class Source:
    """A parsed source and what every check asks of it."""

    nodes: list[ast.AST]
    aliases: dict[str, str] = field(default_factory=dict)
    """Local name -> dotted name that an import gave it."""

    def dotted(self, node: ast.AST) -> str:
        """The dotted name of a name or attribute, imports resolved; "" for other expressions."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.aliases.get(node.id, node.id), *reversed(parts)])

    def called(self, node: ast.AST) -> str:
        """The dotted name of what a call calls; "" for anything else."""
        return self.dotted(node.func) if isinstance(node, ast.Call) else ""


class Unread(Exception):
    """The source cannot be looked at; the message says why."""


def screen(data: bytes) -> tuple[Finding, ...]:
    """Findings by line, each kind once a line. Raises Unread."""
    source = parsed(data)
    found = {Finding(kind, line) for check in CHECKS for kind, line in check(source)}
    return tuple(sorted(found, key=lambda item: (item.line, item.kind)))


def audit(candidate: Path) -> tuple[Audit, ...]:
    """The verdict's rows: one for each kind of finding, or one that says there was none or why nothing was read."""
    try:
        with open_regular(candidate, follow=True) as file:
            data = file.read(MAX_BYTES + 1)
        findings = screen(data)
    except (Unread, OSError) as error:
        return (Audit(name=NAME, result="warned", detail=f"not read: {error}"),)
    if not findings:
        return (Audit(name=NAME, result="passed", detail="nothing in the source asks for a look"),)
    kinds = dict.fromkeys(item.kind for item in findings)
    return tuple(Audit(name=f"{NAME}: {kind}", result="warned", detail=_words(kind, findings)) for kind in kinds)


def _words(kind: str, findings: Iterable[Finding]) -> str:
    lines = [str(item.line) for item in findings if item.kind == kind]
    more = f" and {len(lines) - MAX_LINES_NAMED} more" if len(lines) > MAX_LINES_NAMED else ""
    return f"look at line{'s' if len(lines) > 1 else ''} {', '.join(lines[:MAX_LINES_NAMED])}{more}: {REASONS[kind]}"


def parsed(data: bytes) -> Source:
    """The syntax tree of a source, and what its imports name. Raises Unread."""
    if len(data) > MAX_BYTES:
        raise Unread(f"larger than {MAX_BYTES // 1000} kB")
    _check_size(data)
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unread(f"not parsed ({type(error).__name__})") from error
    source = Source(list(ast.walk(tree)))
    for node in source.nodes:
        if isinstance(node, ast.Import):
            source.aliases.update((name.asname or name.name.partition(".")[0], name.name if name.asname else name.name.partition(".")[0])
                                  for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            source.aliases.update((name.asname or name.name, f"{node.module or ''}.{name.name}") for name in node.names)
    return source


def _check_size(data: bytes) -> None:
    """Raises Unread for what would take seconds, and for nesting that could exhaust the parser's stack, which no exception would report."""
    depth = run = 0
    try:
        for number, token in enumerate(tokenize.tokenize(io.BytesIO(data).readline)):
            if number > MAX_TOKENS:
                raise Unread(f"more than {MAX_TOKENS} words")
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
                run = run + 1 if token.string in ("-", "+", "~", ".", "**") else 0
            elif token.type == tokenize.NAME and token.string in ("not", "lambda", "if", "else", "await", "elif"):
                run += 1
            elif token.type not in (tokenize.NAME, tokenize.NUMBER, tokenize.NL):
                run = 0
            if depth > MAX_DEPTH or run > MAX_DEPTH:
                raise Unread("nested too deeply")
    except (tokenize.TokenError, SyntaxError, ValueError) as error:
        raise Unread(f"not parsed ({type(error).__name__})") from error


Found = Iterator[tuple[str, int]]


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _named_calls(source: Source) -> Found:
    wanted = {name: kind for kind, names in _CALLS.items() for name in names}
    for node in source.nodes:
        if isinstance(node, (ast.Attribute, ast.Name)):  # called or handed on
            kind = wanted.get(source.dotted(node))
            if kind is not None and not isinstance(getattr(node, "ctx", None), ast.Store):
                yield kind, _line(node)


def _imports(source: Source) -> Found:
    wanted = {module: kind for kind, modules in _MODULES.items() for module in modules}
    for node in source.nodes:
        names = ([name.name for name in node.names] if isinstance(node, ast.Import)
                 else [node.module or ""] if isinstance(node, ast.ImportFrom) else [])
        for name in names:
            kind = wanted.get(name.partition(".")[0])
            if kind is not None:
                yield kind, _line(node)


def _patches(source: Source) -> Found:
    for node in source.nodes:
        one = [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []
        targets = node.targets if isinstance(node, ast.Assign) else one
        names = [source.dotted(target) for target in targets if isinstance(target, ast.Attribute)]
        if source.called(node) in ("setattr", "builtins.setattr") and isinstance(node, ast.Call) and len(node.args) > 1:
            what = node.args[1]
            names.append(f"{source.dotted(node.args[0])}.{str(what.value) if isinstance(what, ast.Constant) else '?'}")
        for name in names:
            root = name.partition(".")[0]
            if name.startswith(_TIMERS) or root in ("time",):
                yield "patched timer", _line(node)
            elif root in ("torch", "triton", "builtins", "gc", "os", "sys", "numpy") and not name.startswith(_OWN_FLAGS):
                yield "patched torch", _line(node)


def _code(source: Source) -> Found:
    for node in source.nodes:
        if isinstance(node, ast.Call) and source.called(node).removeprefix("builtins.") in ("exec", "eval", "compile", "__import__"):
            yield "code from data", _line(node)


def _files(source: Source) -> Found:
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = source.called(node)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        place = 0 if method == "open" and name not in ("io.open", "os.open", "builtins.open") else 1
        mode = next((item.value for item in node.keywords if item.arg == "mode"), node.args[place] if len(node.args) > place else None)
        opens = name in ("open", "io.open", "builtins.open") or method == "open"
        writes = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and any(letter in mode.value for letter in "wax+")
        if (opens and writes) or name == "os.open" or method in ("write_text", "write_bytes", "unlink", "touch"):
            yield "files", _line(node)


def _surroundings(source: Source) -> Found:
    for node in source.nodes:
        name = source.dotted(node) if isinstance(node, (ast.Attribute, ast.Name)) else ""
        if name in ("__file__", "os.environ", "sys.argv", "sys.modules", "sys.executable"):
            yield "surroundings", _line(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(("/proc", "/dev/", "/sys/")):
            yield "surroundings", _line(node)


def _words_in_strings(source: Source) -> Found:
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if any(word in node.value for word in _DEVICE_WORDS):
                yield "device limits", _line(node)
            if any(word in node.value for word in _JUDGE_WORDS) and not _is_docstring_like(node.value):
                yield "judge", _line(node)
        elif isinstance(node, ast.Attribute) and any(word in node.attr for word in _DEVICE_WORDS):
            yield "device limits", _line(node)


def _is_docstring_like(text: str) -> bool:
    return len(text.split()) > 3


def _tensor_classes(source: Source) -> Found:
    for node in source.nodes:
        bases = [source.dotted(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
        hook = isinstance(node, ast.FunctionDef) and node.name in ("__torch_function__", "__torch_dispatch__")
        if hook or "torch.Tensor" in bases or "torch.nn.Parameter" in bases:
            yield "tensor class", _line(node)


def _precision(source: Source) -> Found:
    if any(isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "PRECISION" for target in node.targets)
           for node in source.nodes):
        return
    for node in source.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is True:
            flags = [source.dotted(target) for target in node.targets]
            if any(flag.endswith((".allow_tf32", "_reduced_precision_reduction")) for flag in flags):
                yield "precision", _line(node)
        elif isinstance(node, ast.Call):
            name = source.called(node)
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            given = [source.dotted(value) for value in (*node.args, *(item.value for item in node.keywords))]
            highest = any(isinstance(value, ast.Constant) and value.value == "highest" for value in node.args)
            lowers = name == "torch.set_float32_matmul_precision" and not highest
            converts = method in _LOW or (method == "to" and any(value in _LOW_TYPES for value in given))
            if lowers or converts or name in ("torch.autocast", "torch.cuda.amp.autocast"):
                yield "precision", _line(node)


def _streams(source: Source) -> Found:
    names = {source.called(node) for node in source.nodes} | {node.attr for node in source.nodes if isinstance(node, ast.Attribute)}
    if names & {"torch.cuda.graph", "torch.cuda.CUDAGraph", "wait_stream", "wait_event"}:
        return
    for node in source.nodes:
        if source.called(node) in ("torch.cuda.Stream", "torch.Stream", "torch.cuda.ExternalStream"):
            yield "streams", _line(node)


def _fallbacks(source: Source) -> Found:
    for node in source.nodes:
        if not isinstance(node, ast.Try) or all(isinstance(item, (ast.Import, ast.ImportFrom)) for item in node.body):
            continue
        for handler in node.handlers:
            caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            broad = any(item is None or source.dotted(item) in _BROAD for item in caught)
            answers = any(isinstance(item, (ast.Return, ast.Assign)) and item.value is not None
                          and any(isinstance(part, ast.Call) for part in ast.walk(item.value))
                          for statement in handler.body for item in ast.walk(statement))
            if broad and answers:
                yield "fallback", _line(handler)


def _branches(source: Source) -> Found:
    """Tests that hang on a clock, on chance, on a count of calls or on the values of tensors."""
    chance = _tainted(source, lambda node: any(source.called(node).startswith(clock) for clock in _CLOCKS))
    values = _tainted(source, lambda node: isinstance(node, ast.Call) and (
        (isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "tolist"))
        or source.called(node) in ("torch.equal", "torch.allclose")))
    counted = _counters(source)
    for node in source.nodes:
        test = node.test if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)) else None
        for part in ast.walk(test) if test is not None else ():
            if chance(part):
                yield "clock or chance", _line(part) or _line(node)
            if values(part):
                yield "values", _line(part) or _line(node)
            if isinstance(part, (ast.Name, ast.Attribute)) and source.dotted(part) in counted:
                yield "counted calls", _line(part)


def _counters(source: Source) -> set[str]:
    """Names that outlive a call (global, nonlocal, attributes) and are counted up."""
    outlive = {name for node in source.nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    counted = {source.dotted(node.target) for node in source.nodes if isinstance(node, ast.AugAssign)}
    return {name for name in counted if name in outlive or "." in name}


def _identities(source: Source) -> Found:
    def identifies(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in ("_version", "data_ptr")
        return source.called(node) in ("id", "builtins.id")

    tainted = _tainted(source, identifies)
    for node in source.nodes:
        places: list[ast.AST] = []
        if isinstance(node, ast.Subscript):
            places = [node.slice]
        elif isinstance(node, ast.Compare):
            places = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKUPS:
            places = list(node.args)
        elif isinstance(node, ast.Dict):
            places = [key for key in node.keys if key is not None]
        for part in (part for place in places for part in ast.walk(place)):
            if tainted(part):
                yield "identity", _line(part)


def _tainted(source: Source, origin: Callable[[ast.AST], bool]) -> Callable[[ast.AST], bool]:
    """A test for nodes that are an origin, or a name that was assigned from an expression with one (one step, names taken file-wide)."""
    names: set[str] = set()
    for node in source.nodes:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) else None
        if value is not None and not isinstance(value, ast.Lambda) and any(origin(part) for part in ast.walk(value)):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return lambda node: origin(node) or (isinstance(node, ast.Name) and node.id in names)


CHECKS: tuple[Callable[[Source], Found], ...] = (
    _named_calls, _imports, _patches, _code, _files, _surroundings, _words_in_strings, _tensor_classes, _precision, _streams, _fallbacks,
    _branches, _identities)
