"""Kernel names: Kineto writes the C++ symbol as the compiler's run-time library demangles it, ncu by a demangler of its own.

On two recordings of the same programs (141 launches) the symbol of ncu, demangled by that library, is Kineto's name character by character;
ncu's own "demangled" name is not ("(int)128" for "128", "<unnamed>" for "(anonymous namespace)", T1 for the argument).
"""

from __future__ import annotations

import ctypes
import re
import sys
from functools import lru_cache

_LIBRARIES = {"darwin": ("libc++abi.dylib", "/usr/lib/libc++abi.dylib"), "linux": ("libstdc++.so.6", "libc++abi.so.1")}
_MAX_SYMBOL = 1 << 16
_ANONYMOUS = "(anonymous namespace)"
_SYMBOL_NAME = re.compile(r"[A-Za-z_$][\w$.]*")


@lru_cache(maxsize=4096)
def demangled(symbol: str) -> str | None:
    """A C++ symbol as Kineto shows it; plain names as they are. None where this machine has no demangler, or it refuses."""
    if not symbol.startswith("_Z"):
        return symbol
    library = _library()
    if library is None or len(symbol) > _MAX_SYMBOL:
        return None
    status = ctypes.c_int(0)
    library.__cxa_demangle.restype = ctypes.c_void_p
    text = library.__cxa_demangle(symbol.encode("utf-8", "replace"), None, None, ctypes.byref(status))
    if not text:
        return None
    try:
        return ctypes.string_at(text).decode("utf-8", "replace")
    finally:
        _free(text)


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    for name in _LIBRARIES.get(sys.platform, ()):
        try:
            library = ctypes.CDLL(name)
            library.__cxa_demangle  # noqa: B018 - AttributeError where it is not exported
        except (OSError, AttributeError):
            continue
        return library
    return None


def _free(text: int) -> None:
    ctypes.CDLL(None).free(ctypes.c_void_p(text))


def function_name(name: str) -> str:
    """The bare function of a demangled name: "void at::native::f<4, g(int)>(int)" -> "f"; plain names as they are."""
    head = name.replace(_ANONYMOUS, "anonymous_namespace")
    head = re.split(r"[<(]", head, maxsplit=1)[0].strip()
    last = head.split(" ")[-1].split("::")[-1]
    return last if _SYMBOL_NAME.fullmatch(last) else name


def same_kernel(timeline: str, name: str, symbol: str, function: str) -> bool:
    """Whether a name of the timeline is this kernel of a report: by the demangled name or the symbol (Kineto leaves very long symbols as
    they are); by the bare function where the symbol could not be demangled."""
    if timeline in (name, symbol):
        return True
    return demangled(symbol) is None and function_name(timeline) == function
