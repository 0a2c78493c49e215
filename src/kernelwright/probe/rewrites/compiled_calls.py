"""How a compiled model is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._dynamo import OptimizedModule


def bare(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """What torch.compile made of a module, without the module that it puts around it: that takes a fifth of the host's time for a small
    call (bench/call_cost.py), and only looks for hooks, of which it has none. What is not compiled (TORCHDYNAMO_DISABLE=1) is as it was."""
    return compiled.forward if isinstance(compiled, OptimizedModule) else compiled
