"""`start.py sanitize REQUEST.json`: builds a program and calls it once, in a process that compute-sanitizer looks at."""

from __future__ import annotations

import json
from typing import Any

import torch

from . import environment, failures, judge_candidate, loaders
from .judge_program import Program


def main(argv: list[str]) -> int:
    """REQUEST: path, version, params, device, seed, inputs_seed, call_seed, candidate (null: the reference itself), result (a path).

    result gets {"ok": true} or {"ok": false, "error": {...}}.
    """
    with open(argv[0], encoding="utf-8") as file:
        request: dict[str, Any] = json.load(file)
    try:
        _call_once(request)
        answer: dict[str, Any] = {"ok": True}
    except BaseException as error:  # noqa: BLE001 the outermost edge: whatever the program did becomes an answer
        answer = {"ok": False, "error": failures.describe(error, request["candidate"] or request["path"]).as_dict()}
    with open(request["result"], "w", encoding="utf-8") as file:
        json.dump(answer, file)
    return 0  # a plain exit: the tool reports what it found when the process ends


def _call_once(request: dict[str, Any]) -> None:
    environment.check_torch()
    workload = loaders.load_named(request, request["device"], request["seed"])
    call = workload.model
    if request["candidate"] is not None:
        call = judge_candidate.build(request["candidate"], workload, request["seed"]).call
    program = Program(workload, call)
    program.call(workload.fresh_inputs(request["inputs_seed"]), request["call_seed"])
    program.synchronize()
    if workload.device == "cuda":
        torch.cuda.synchronize()
