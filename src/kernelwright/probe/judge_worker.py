"""The judge's worker: one process for the reference, one for the candidate, commanded by the parent over a pipe pair.

One JSON object a line: {"id", "op", ...} -> {"id", "ok": true, ...} or {"id", "ok": false, "error": {...}}. Tensors travel as raw
files. The parent draws all seeds and computes all errors; this process only runs what it is told to and exports what came out.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hmac
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import (
    confine,
    count,
    environment,
    failures,
    judge_ahead,
    judge_candidate,
    judge_conditions,
    judge_distributions,
    judge_kernels,
    judge_reference,
    judge_survey,
    judge_tf32,
    judge_window,
    loaders,
    screen,
    tree,
)
from .judge_inputs import plain_leaves, with_plain
from .judge_program import RING_BYTES, Program, Timer, check_dense, plain_name, ready_vector_functions, refill, unwrap
from .judge_tensors import (
    BUFFER,
    WRITTEN,
    Leaf,
    address_space_peak,
    checksum,
    clone_like,
    dirty_malloc,
    layout,
    may_be_dirty,
    poison,
    read_leaves,
    write_leaves,
)
from .loaders import Inputs

Message = dict[str, Any]


class Worker:
    """The state of one worker and its operations (methods op_NAME)."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.program: Program
        self.workload: loaders.LoadedWorkload
        self.rounds: dict[int, Inputs] = {}
        """Untouched inputs of each round; calls get copies."""
        self.called: Inputs | None = None
        """The inputs of the latest checked call, as that call left them."""
        self.outputs: list[Leaf] = []
        self.previous: list[Leaf] = []
        """The outputs of the checked call before, where they were asked to be kept."""
        self.clean_calls_fit: bool | None = None
        """Whether all calls with clean memory so far took so little of it that one may be made with dirty memory. None: there was none."""
        self.timer: Timer | None = None
        self.condition: judge_conditions.Condition | None = None
        self.start_state: dict[str, torch.Tensor] = {}
        self.before: dict[str, torch.Tensor] = {}
        """Of a reference that changes its buffers in inference: those that the latest checked call began with."""
        self.runs_begin_there: bool | None = None
        """Whether other runs begin with them: a copy in float64 has lost what buffers share with each other, and is nearer without."""
        self.tf32_weights: list[str] | None = None
        self.own_kernels: judge_kernels.OwnKernels
        self.withholding: judge_kernels.Withholding

    def op_admit(self, message: Message) -> Message:
        """A spare worker is told its candidate, of which nothing has run: what the confinement allows with that file."""
        return confine.admit(message["candidate"])

    def op_load(self, message: Message) -> Message:
        """Load the workload; both workers are given the same seed."""
        environment.check_torch()
        ready_vector_functions(environment.resolve_device(message["device"]))
        self.workload = loaders.load_named(message, message["device"], message["seed"])
        check_dense(self.workload)
        self.program = Program(self.workload, self.workload.model)
        self.start_state = {name: tensor.detach().clone() for name, tensor in self._buffers().items()}
        return {"environment": environment.describe(self.workload.device), "training": self.workload.training, "form": self.workload.form,
                "state": {name: checksum(tensor) for name, tensor in self._state().items()}}

    def op_dump_state(self, message: Message) -> Message:
        """Export parameters and buffers."""
        write_leaves(message["file"], list(self._state().items()))
        return {}

    def op_load_state(self, message: Message) -> Message:
        """Take the reference's parameters and buffers where its generator did not follow the seed."""
        mine = self._state()
        theirs = dict(read_leaves(message["file"], torch.device(self.workload.device)))
        if mine.keys() != theirs.keys() or any(mine[name].shape != theirs[name].shape for name in mine):
            return {"loaded": False}
        with torch.no_grad():
            for name, tensor in mine.items():
                tensor.copy_(theirs[name])
        return {"loaded": True}

    def op_build(self, message: Message) -> Message:
        """Import and build the candidate."""
        self.own_kernels = judge_kernels.OwnKernels()
        self.withholding = judge_kernels.Withholding(self.own_kernels)
        start = time.perf_counter()
        built = judge_candidate.build(message["candidate"], self.workload, message["seed"])
        self.program = Program(self.workload, built.call, is_new=built.entry == "ModelNew")
        self.program.synchronize()
        return {"entry": built.entry, "precision": built.precision, "notes": built.notes, "build_s": time.perf_counter() - start}

    def op_reset(self, message: Message) -> Message:
        """Before another candidate: the reference's buffers as loaded, no rounds."""
        with torch.no_grad():
            for name, tensor in self._buffers().items():
                if name in self.start_state:
                    self._fill(tensor, self.start_state[name])
        self.rounds, self.called, self.outputs, self.previous, self.timer, self.condition = {}, None, [], [], None, None
        self.before = {}
        return {}

    def op_make_inputs(self, message: Message) -> Message:
        """Fresh inputs of a round under a secret seed, maybe in another distribution, exported."""
        inputs, stuck = judge_reference.fresh_inputs(self.workload, message["seed"], self.rounds.get(0))
        changed: dict[str, str] = {}
        if message.get("kind"):
            inputs, changed = judge_distributions.transformed(inputs, message["kind"], message["seed"], bool(message["free"]))
        self.rounds[message["round"]] = inputs
        write_leaves(message["file"], tree.leaves(inputs))
        return {"jittered": stuck, "plain": plain_leaves(inputs), "changed": changed}

    def op_forget(self, message: Message) -> Message:
        """A round that is over and not to be timed."""
        self.rounds.pop(message["round"], None)
        return {}

    def op_survey(self, message: Message) -> Message:
        """Reference only: how the workload behaves on other inputs and weights; its own model is left as it is."""
        try:
            survey = judge_survey.Survey(self.workload, self.start_state, message["seed"])
            told = survey.told(message["distributions_s"], message["dependence_s"])
            self.program.synchronize()  # raises where a device-side assertion has cost this process its device
            return {"applicable": True, **told}
        except judge_reference.NotApplicable as reason:
            return {"applicable": False, "reason": str(reason)[:300]}
        finally:
            if self.workload.device == "cuda":
                torch.cuda.empty_cache()

    def op_take_inputs(self, message: Message) -> Message:
        """The reference's inputs of a round: tensors from its file, plain values from the message."""
        leaves = read_leaves(message["file"], torch.device(self.workload.device))
        own = (self.workload.args, self.workload.kwargs)
        expected = tree.leaves(own)
        if len(leaves) != len(expected):
            raise failures.workload_failed(
                "inputs_differ", f"the workload makes {len(expected)} input tensors here and {len(leaves)} in the reference's process",
                fix="let the structure of the inputs depend on nothing but the parameters")
        given = {id(mine): leaf.requires_grad_(mine.requires_grad) for (_, leaf), (_, mine) in zip(leaves, expected, strict=True)}
        try:
            self.rounds[message["round"]] = with_plain(tree.map_tensors(lambda mine: given[id(mine)], own), message["plain"])
        except ValueError as error:
            raise failures.workload_failed(
                "inputs_differ", "the workload makes inputs of another structure here than in the reference's process",
                fix="let the structure of the inputs depend on nothing but the parameters") from error
        return {}

    def op_call(self, message: Message) -> Message:
        """One checked call on a round's inputs; with refill, in the tensors that the call before used."""
        wanted = self.rounds[message["round"]]
        refilled = bool(message["refill"]) and self.called is not None and refill(self.called, wanted)
        if not refilled:
            self.called = tree.map_tensors(clone_like, wanted)
        assert self.called is not None
        self.program.restore(self.start_state)
        sizes = [leaf.numel() * leaf.element_size() for _, leaf in [*self.outputs, *tree.leaves(self.called)]]
        self.previous, self.outputs = self.outputs if message.get("keep") else [], []
        if message.get("poison"):
            poison(sizes, self.workload.device)
        # By turns: not every error shows with either garbage. Never the first call, in which a candidate may compile and tune.
        dirty = bool(message.get("poison")) and message["round"] % 2 == 1 and bool(self.clean_calls_fit)
        peak = address_space_peak()
        is_stateful, self.before = bool(self.before), {}
        before = {name: tensor.detach().clone() for name, tensor in self._buffers().items()} if is_stateful else self.start_state
        start = time.perf_counter()
        with dirty_malloc(self.workload.device) if dirty else contextlib.nullcontext():
            self.outputs, drew = self.program.call(self.called, message["seed"])
        call_s = time.perf_counter() - start
        if not dirty:
            self.clean_calls_fit = may_be_dirty(peak, address_space_peak()) and self.clean_calls_fit is not False
        changed = self._buffers_changed()
        if changed and not self.workload.training:
            self._note_changed(changed)
        self.before = before if (changed or is_stateful) and not self.workload.training else {}
        return {"call_s": call_s, "drew_random_numbers": drew.torch, "drew_outside": drew.outside, "buffers_changed": bool(changed),
                "written": self._written(wanted)}

    def op_layout(self, _message: Message) -> Message:
        """How the latest outputs lie in memory."""
        outputs = [(path, leaf) for path, leaf in self.outputs if not path.startswith(BUFFER)]
        return {"outputs": layout(outputs, tree.leaves(self.called))}

    def op_churn(self, message: Message) -> Message:
        """Many calls on the rounds' inputs, refilled in place, until the count or the time is reached."""
        numbers = [number for number in sorted(self.rounds) if number in message["rounds"]]
        start, calls = time.perf_counter(), 0
        while calls < message["calls"] and (calls < len(numbers) or time.perf_counter() - start < message["seconds"]):
            wanted = self.rounds[numbers[calls % len(numbers)]]
            if self.called is None or not refill(self.called, wanted):
                self.called = tree.map_tensors(clone_like, wanted)
            self.program.restore(self.start_state)
            self.program.call(self.called, message["seed"] + calls)
            calls += 1
        return {"calls": calls}

    def op_export(self, message: Message) -> Message:
        """Write the latest outputs, the inputs or these buffers as that call left them, a round's untouched inputs, or the output of the
        last timed call."""
        if message["what"] == "timed" and self.timer is not None:
            leaves = self.program.leaves(self.timer.last_output, buffers=False)
        elif message["what"] == "previous":
            leaves = self.previous
        elif message["what"] == "state":  # from now on they are among the outputs
            self.workload.changed_buffers = tuple(message["names"])
            leaves = self.program.state()
        elif message["what"] == "inputs":
            leaves = tree.leaves(self.called)
        elif message["what"] == "pristine":
            leaves = tree.leaves(self.rounds[message["round"]])
        else:
            leaves = self.outputs
        _write(message, leaves)
        return {}

    def op_oracle(self, message: Message) -> Message:
        """Reference only: a round in float64, exported."""
        after = dict(tree.leaves(self.called))
        expected = [*self.outputs, *((WRITTEN + path, after[path]) for path in message["written"])]

        def run(inputs: Inputs) -> list[Leaf]:
            return judge_reference.oracle(self.workload, inputs, message["seed"], expected, message["written"])

        if self.before and self.runs_begin_there is None:
            self.runs_begin_there = self._is_nearer_from_before(lambda: run(self.rounds[message["round"]]), expected)
        return self._other_run(message, run)

    def op_perturbed(self, message: Message) -> Message:
        """Reference only: a round's oracle on inputs moved by rounding errors, exported."""
        after = dict(tree.leaves(self.called))
        expected = [*self.outputs, *((WRITTEN + path, after[path]) for path in message["written"])]
        return self._other_run(message, lambda inputs: judge_reference.perturbed_run(
            self.workload, inputs, message["seed"], expected, message["written"], message["roundoff"], message["noise_seed"]))

    def op_yardstick(self, message: Message) -> Message:
        """Reference only: a round in a lower precision, exported."""
        return self._other_run(message, lambda inputs: judge_reference.yardstick(
            self.workload, inputs, message["seed"], message["precision"], message["how"], message["written"]))

    def op_rounded(self, message: Message) -> Message:
        """Reference only: a round with the weights that it rounds to TF32 rounded at random, exported."""
        def run(inputs: Inputs) -> list[Leaf]:
            if self.tf32_weights is None:  # seen on the generator's inputs: on others a bias may hide it
                self.tf32_weights = judge_tf32.tf32_weights(self.workload, self.rounds.get(0, inputs), message["seed"])
            return judge_tf32.rounded_run(
                self.workload, inputs, message["seed"], message["written"], self.tf32_weights, message["noise_seed"])

        return self._other_run(message, run)

    def op_prepare_timing(self, message: Message) -> Message:
        """Build the ring of input sets and warm up. Returns the ring's size and seconds a call."""
        pool = [self.rounds[index] for index in sorted(self.rounds)]
        nbytes = sum(leaf.numel() * leaf.element_size() for _, leaf in tree.leaves(pool[0])) or 1
        calls = max(1, min(message["calls"], RING_BYTES[self.workload.device] // nbytes))
        if calls > 1 and len(pool) > 1 and calls % len(pool) == 0:
            calls -= 1  # else each place would have the same values in every sample
        self.timer = self.condition = None
        self.timer = Timer(self.program, pool, calls)
        return {"ring": calls, "pool": len(pool), "device": self.workload.device, "threads": torch.get_num_threads(),
                "call_s": self.timer.warm(message["seconds"], message["min_calls"])}

    def op_lead_in(self, message: Message) -> Message:
        """Before a block: one untimed pass."""
        assert self.timer is not None
        self.timer.lead_in(message["first"])
        return {}

    def op_time(self, message: Message) -> Message:
        """One block of samples."""
        assert self.timer is not None
        events, hosts = self.timer.block(message["samples"], message["first"], message["last_calls"])
        return {"events_ns": events, "host_ns": hosts}

    def op_time_single(self, message: Message) -> Message:
        """One call on a new round's inputs, or on those of the timing with this index; with warm, after an untimed one on each of these."""
        assert self.timer is not None
        pool = self.timer.pool
        values = pool[message["index"] % len(pool)] if message["round"] is None else self.rounds[message["round"]]
        return {"call_ns": self.timer.single(values, pool if message["warm"] else [])}

    def op_renew(self, message: Message) -> Message:
        """Input sets at other addresses for the blocks that follow."""
        assert self.timer is not None
        self.timer.renew()
        return {}

    def op_prepare_condition(self, message: Message) -> Message:
        """Get ready to time under another condition than warm and alone (judge_conditions names them), and try it once."""
        assert self.timer is not None
        self.condition = None
        try:
            self.condition = judge_conditions.Condition(message["condition"], self.timer)
            self.condition.block(1, 0)
        except (judge_conditions.NotHere, torch.cuda.OutOfMemoryError) as reason:
            self.condition = None
            return {"applicable": False, "reason": " ".join(str(reason).split())[:300], "calls": 1, "sample_s": 0.0}
        start = time.perf_counter()
        self.condition.block(1, 0)
        return {"applicable": True, "calls": self.condition.calls, "sample_s": time.perf_counter() - start,
                "has_own_graph": self.condition.has_own_graph}

    def op_time_condition(self, message: Message) -> Message:
        """One block of samples under it."""
        assert self.condition is not None
        events, hosts = self.condition.block(message["samples"], message["first"])
        return {"events_ns": events, "host_ns": hosts}

    def op_end_conditions(self, message: Message) -> Message:
        """Free what the conditions held."""
        self.condition = None
        return {}

    def op_output_bytes(self, message: Message) -> Message:
        """Bytes of a timed call's inputs, and of its output in memory of its own (expanded dimensions once)."""
        assert self.timer is not None
        self.timer.lead_in()
        model = unwrap(self.workload.model)
        weights = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
        given = tree.tensors(self.timer.ring)
        outputs = [leaf for _, leaf in self.program.leaves(self.timer.last_output, buffers=False)]
        own = count.covered([*given, *weights, *outputs]) - count.covered([*given, *weights])
        return {"output_bytes": max(own, 0.0), "input_bytes": count.covered(tree.tensors(self.timer.ring[0]))}

    def op_count_work(self, message: Message) -> Message:
        """Reference only: FLOPs and least bytes of one call."""
        work, _ = count.count(self.workload)
        return {"flops": work["flops"], "min_bytes": work["min_bytes"]}

    def op_record_window(self, message: Message) -> Message:
        """A Kineto trace of a few samples of the timed calls (one call each where nothing was prepared), exported to a file."""
        pool = [self.rounds[index] for index in sorted(self.rounds)]
        return judge_window.record(self.timer or Timer(self.program, pool, 1), self.workload.device, message["file"], message["samples"])

    def op_own_kernels(self, message: Message) -> Message:
        """Kernels that the candidate brought, by kind; operators in the namespaces that its source names."""
        self.own_kernels.namespaces = frozenset(message["namespaces"])
        return dict(self.own_kernels.describe())

    def op_withhold(self, message: Message) -> Message:
        """From now on these own kernels compute nothing that is kept."""
        self.withholding.start(message["names"])
        return {}

    def op_withheld(self, message: Message) -> Message:
        """How often each was withheld since."""
        return {"counts": dict(self.withholding.counts), "unseen": sorted(self.withholding.unseen)}

    def _other_run(self, message: Message, run: Callable[[Inputs], list[Leaf]]) -> Message:
        self.program.restore(self.start_state)  # the copy of the model starts where the checked call did
        try:
            with self._as_before() if self.runs_begin_there is not False else contextlib.nullcontext():
                leaves = run(self.rounds[message["round"]])
            _write(message, leaves)
        except (judge_reference.NotApplicable, failures.ProbeFailure) as reason:
            return {"applicable": False, "reason": str(reason)[:300]}
        finally:
            if self.workload.device == "cuda":
                torch.cuda.empty_cache()  # the candidate's process shares this memory
        return {"applicable": True}

    @contextlib.contextmanager
    def _as_before(self) -> Iterator[None]:
        """Inside it the model's buffers hold what the latest checked call began with, where such calls change them: for copies of it. In
        place where the shapes allow it, so that what shares their memory goes along."""
        buffers = self._buffers()
        changed = [(name, tensor) for name, tensor in buffers.items() if name in self.before]
        now = [tensor.detach().clone() for _, tensor in changed]
        try:
            for name, tensor in changed:
                self._fill(tensor, self.before[name])
            yield
        finally:
            for (_, tensor), value in zip(changed, now, strict=True):
                self._fill(tensor, value)

    def _is_nearer_from_before(self, run: Callable[[], list[Leaf]], expected: list[Leaf]) -> bool:
        changes = []
        for begins in (self._as_before(), contextlib.nullcontext()):
            try:
                with begins:
                    found = run()
            except judge_reference.NotApplicable:
                return True
            change = judge_survey.relative_change(expected, found)  # outside: an output may be a buffer
            changes.append(float("inf") if change is None else change)
        return changes[0] <= changes[1]

    @staticmethod
    def _fill(buffer: torch.Tensor, value: torch.Tensor) -> None:
        with torch.inference_mode(buffer.is_inference()), torch.no_grad():
            if buffer.shape == value.shape:
                buffer.copy_(value)
            else:
                buffer.data = value.clone()

    def _written(self, pristine: Inputs) -> list[str]:
        """Paths of the inputs that the latest call wrote to. A candidate's word counts against it alone."""
        before = dict(tree.leaves(pristine))
        return [path for path, leaf in tree.leaves(self.called) if path in before and not _same_bits(leaf, before[path])]

    def _state(self) -> dict[str, torch.Tensor]:
        model = unwrap(self.workload.model)
        return {**dict(model.named_parameters()), **self._buffers()} if isinstance(model, torch.nn.Module) else {}

    def _buffers(self) -> dict[str, torch.Tensor]:
        model = unwrap(self.workload.model)
        return {plain_name(name): buffer for name, buffer in model.named_buffers()} if isinstance(model, torch.nn.Module) else {}

    def _buffers_changed(self) -> list[str]:
        if self.role != "reference":
            return []
        return [name for name, tensor in self._buffers().items()
                if name in self.start_state and not torch.equal(tensor, self.start_state[name])]

    def _note_changed(self, names: list[str]) -> None:
        """Those not known yet join the outputs of this call, and of all later ones; not one of another size than it was loaded with, a
        table that grows with what is asked of it."""
        held, known = self._buffers(), self.workload.changed_buffers
        new = [name for name in names if name not in known and held[name].shape == self.start_state[name].shape]
        self.workload.changed_buffers = (*known, *new)
        self.outputs += [(path, leaf) for path, leaf in self.program.state() if path.removeprefix(BUFFER) in new]


def main(argv: list[str]) -> int:
    """Serve requests until the parent closes its end."""
    parser = argparse.ArgumentParser(prog="start.py judge")
    parser.add_argument("--role", choices=("reference", "candidate", "screen"), required=True)
    parser.add_argument("--request-fd", type=int, required=True)
    parser.add_argument("--reply-fd", type=int, required=True)
    parser.add_argument("--ahead", action="store_true")
    args = parser.parse_args(argv)
    _die_with_parent()
    os.set_inheritable(args.request_fd, False)
    os.set_inheritable(args.reply_fd, False)
    worker = screen.Screen() if args.role == "screen" else Worker(args.role)
    answer = _sealed(bytes.fromhex(_first_line(args.request_fd).decode()), args.reply_fd)
    if args.ahead:
        judge_ahead.load(args.request_fd)
    with os.fdopen(args.request_fd, "rb") as requests:
        for line in iter(requests.readline, b""):
            message = json.loads(line)
            answer({"id": message["id"], **_serve(worker, message)})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads or exit handlers that the candidate left must not hold the judge up


def _first_line(fd: int) -> bytes:
    """Byte by byte: what follows it stays to be read, and seen to be there."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(fd, 1)):
        line += byte
    return line


def _write(message: Message, leaves: list[Leaf]) -> None:
    """To the file that was asked for, large ones as the sample that was asked for."""
    write_leaves(message["file"], leaves, sample_seed=message["sample_seed"], limit_elements=message["limit_elements"],
                 sample_elements=message["sample_elements"])


def _same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    return bool(torch.equal(one, two)) or bool(torch.equal(torch.nan_to_num(one), torch.nan_to_num(two))
                                               and torch.equal(one.isnan(), two.isnan()))


def _serve(worker: Worker | screen.Screen, message: Message) -> Message:
    try:
        return {"ok": True, **getattr(worker, f"op_{message['op']}")(message)}
    except BaseException as error:  # noqa: BLE001 the outermost edge: whatever the program did becomes a reply
        return {"ok": False, "error": failures.describe(error, message.get("candidate") or message.get("path") or "").as_dict()}


def _sealed(key: bytes, fd: int) -> Callable[[Message], None]:
    """Writes replies with their HMAC. The key and the functions are held from before any of the candidate's code is imported."""
    start, encode, write = hmac.new(key, digestmod="sha256"), json.dumps, os.write

    def answer(reply: Message) -> None:
        text = encode(reply).encode()
        seal = start.copy()
        seal.update(text)
        data = seal.hexdigest().encode() + b" " + text + b"\n"
        while data:
            data = data[write(fd, data):]

    return answer


def _die_with_parent() -> None:
    """Linux: SIGKILL when the parent dies, however it dies (PR_SET_PDEATHSIG = 1)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
