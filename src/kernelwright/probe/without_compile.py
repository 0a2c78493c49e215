"""A workload that is compiled already, recorded once more without its own torch.compile: what the model runs, and what that takes."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

from . import facts, timers, variation
from .failures import ProbeFailure
from .loaders import LoadedWorkload
from .results import write_json
from .rewrites.unwrap_compiled import uncompiled
from .run import RESULT_FILE, Session

WHAT = "recording the workload without its own torch.compile"
SLOW_S = 2.0
"""A first call above this: some fifteen more would take a large part of a budget of a minute or two."""
FOLDER = "uncompiled"
"""Beside the workload's own recordings; it has a result.json too."""


def record(own: Session, workload: LoadedWorkload) -> None:
    """Timing, timeline (without stacks) and count into FOLDER of the session's folder; nothing where no torch.compile can be taken off.
    A generation loop and a backward pass, which can't be looked for in compiled code, go into the session's facts. What was compiled is
    dropped. A model that fails without its torch.compile, or takes longer than SLOW_S a call, is a warning."""
    model = uncompiled(workload.model)
    if model is None:
        return
    facts.forget_compiled()
    try:
        _record(own, dataclasses.replace(workload, model=model))
    except ProbeFailure as error:
        own.warn(f"{WHAT} failed: {error.message}")


def _record(own: Session, plain: LoadedWorkload) -> None:
    began = time.monotonic()
    output = plain.step()
    timers.synchronize(plain.device)
    call_s = time.monotonic() - began
    if call_s > SLOW_S:
        own.warn(f"{WHAT} was left out: without it a call takes {call_s:.1f} s")
        return
    request: dict[str, Any] = {**own.request, "out_dir": os.path.join(own.request["out_dir"], FOLDER), "stacks": False}
    os.makedirs(request["out_dir"], exist_ok=True)
    session = Session(request)
    session.result.update(facts=facts.describe(plain, output), environment=own.result["environment"])
    session.timed(plain, plain.caller())
    with session.phase("count"), session.optional("counting FLOPs and bytes"):
        session.count(plain)
    write_json(os.path.join(request["out_dir"], RESULT_FILE), session.result)
    if request.get("variation"):
        own.result["facts"].update(variation.watched(plain))
