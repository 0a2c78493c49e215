"""A model that says what a test wrote down: a local server that speaks the Messages API's stream of events."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Turn = dict[str, Any]
"""One content block: {"type": "text", "text": ...} or {"type": "tool_use", "name": ..., "input": ...}."""
Step = Turn | Callable[[dict[str, Any]], Turn]
"""A turn, or what makes one out of the request that asks for it."""


def says(text: str) -> Turn:
    """A turn that ends the conversation."""
    return {"type": "text", "text": text}


def runs(command: str) -> Turn:
    """A turn that asks for one shell command."""
    return {"type": "tool_use", "name": "Bash", "input": {"command": command, "description": "a scripted command"}}


def reads(path: Path) -> Turn:
    """A turn that asks for one file."""
    return {"type": "tool_use", "name": "Read", "input": {"file_path": str(path)}}


def delegates(agent: str, task: str) -> Turn:
    """A turn that starts an agent and waits for its answer."""
    given = {"subagent_type": agent, "prompt": task, "description": "a scripted task", "run_in_background": False}
    return {"type": "tool_use", "name": "Agent", "input": given}


class ScriptedModel(ThreadingHTTPServer):
    """Answers each request that carries tools with the next turn; the side requests of a client get an empty answer.

    agents: words of an agent's instructions -> that agent's own turns.
    """

    daemon_threads = True

    def __init__(self, turns: Sequence[Step], agents: Mapping[str, Sequence[Step]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.turns = list(turns)
        self.agents = {words: list(own) for words, own in agents.items()}
        self.requests: list[dict[str, Any]] = []
        self.guard = threading.Lock()

    @property
    def url(self) -> str:
        """Base address for the client."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, request: dict[str, Any]) -> Turn:
        """The next turn, and a record of the request."""
        if not request.get("tools"):
            return says("")
        with self.guard:
            self.requests.append(request)
            system = json.dumps(request.get("system"))
            turns = next((own for words, own in self.agents.items() if words in system), self.turns)
            step = turns.pop(0) if turns else says("The script has ended.")
            turn = step(request) if callable(step) else step
            return {**turn, "id": f"toolu_{len(self.requests)}"} if turn["type"] == "tool_use" else turn


@contextmanager
def scripted_model(*turns: Step, agents: Mapping[str, Sequence[Step]] | None = None) -> Iterator[ScriptedModel]:
    """The server, running for the length of the block."""
    server = ScriptedModel(turns, agents or {})
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedModel

    def do_HEAD(self) -> None:
        self._send(b"", "text/plain")

    def do_GET(self) -> None:
        self._send(b"{}", "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path.split("?")[0].endswith("/count_tokens"):
            self._send(b'{"input_tokens": 1}', "application/json")
            return
        turn = self.server.answer(body)
        name = body.get("model", "scripted")
        if body.get("stream"):
            self._send(b"".join(_event(kind, data) for kind, data in stream(turn, name)), "text/event-stream")
        else:
            self._send(json.dumps({**_message(name), "content": [turn], "stop_reason": "end_turn"}).encode(), "application/json")

    def _send(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def stream(turn: Turn, model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of one answer with one content block."""
    yield "message_start", {"message": {**_message(model), "content": []}}
    if turn["type"] == "tool_use":
        block = {"type": "tool_use", "id": turn["id"], "name": turn["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(turn["input"])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": turn["text"]}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "tool_use" if turn["type"] == "tool_use" else "end_turn"
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}}
    yield "message_stop", {}


def _message(model: str) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()
