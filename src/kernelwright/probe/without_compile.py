"""A workload that is compiled already, recorded once more without its own torch.compile: what the model runs, and what that takes."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from . import facts, variation
from .loaders import LoadedWorkload
from .results import write_json
from .rewrites.unwrap_compiled import uncompiled
from .run import RESULT_FILE, Session

FOLDER = "uncompiled"
"""Beside the workload's own recordings; it has a result.json too."""


def record(own: Session, workload: LoadedWorkload) -> None:
    """Timing, timeline (without stacks) and count into FOLDER of the session's folder; nothing where no torch.compile can be taken off.
    A generation loop, which can't be looked for in compiled code, goes into the session's facts. What was compiled is dropped."""
    model = uncompiled(workload.model)
    if model is None:
        return
    facts.forget_compiled()
    plain = dataclasses.replace(workload, model=model)
    request: dict[str, Any] = {**own.request, "out_dir": os.path.join(own.request["out_dir"], FOLDER), "stacks": False}
    os.makedirs(request["out_dir"], exist_ok=True)
    session = Session(request)
    session.result.update(facts=facts.describe(plain, plain.step()), environment=own.result["environment"])
    session.timed(plain, plain.caller())
    with session.phase("count"), session.optional("counting FLOPs and bytes"):
        session.count(plain)
    write_json(os.path.join(request["out_dir"], RESULT_FILE), session.result)
    if request.get("variation"):
        own.result["facts"]["loop"] = variation.loop(plain)
