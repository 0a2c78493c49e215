"""Headless Chromium as a test drives it, over the pipe of the DevTools protocol: no port, no network, a profile of its own."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from archives import unpack

ROOT = Path(__file__).resolve().parents[2]
PACKED = ROOT / "build" / "clients" / "node_modules" / "@sparticuz" / "chromium" / "bin"
UNPACK = """const fs = require("fs"), {pipeline} = require("stream/promises"), zlib = require("zlib"), [from, to] = process.argv.slice(1);
Promise.all(["chromium", "al2023.tar", "fonts.tar"].map((name) => pipeline(
  fs.createReadStream(`${from}/${name}.br`), zlib.createBrotliDecompress(), fs.createWriteStream(`${to}/${name}`))));"""
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><dir>/usr/share/fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>"""
OPTIONS = ("--headless=shell", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-software-rasterizer", "--remote-debugging-pipe",
           "--hide-scrollbars", "--no-first-run", "about:blank")


def chromium() -> Path:
    """The folder of the browser from npm, unpacked beside it once: its program, the libraries that a bare machine lacks, a font."""
    folder = PACKED.parent / "unpacked"
    if not folder.exists():
        assert PACKED.is_dir(), "run `make test-clients`: it installs the browser first"
        made = Path(tempfile.mkdtemp(dir=PACKED.parent))
        subprocess.run(["node", "-e", UNPACK, PACKED, made], check=True)
        for name in ("al2023.tar", "fonts.tar"):
            unpack(made / name, made)
            (made / name).unlink()
        (made / "fonts.conf").write_text(FONTS)
        (made / "chromium").chmod(0o755)
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return folder


class Page:
    """One tab."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._left = b""
        self._count = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """What the browser told unasked: console messages, requests, errors."""
        target = next(one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params, **({"sessionId": self._session} if self._session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._requests, data):]
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            read = os.read(self._answers, 1 << 20)
            assert read, "the browser ended"
            self._left += read
        message, _, self._left = self._left.partition(b"\0")
        return dict(json.loads(message))

    def open(self, file: Path, width: int = 1400, height: int = 800, dark: bool = False) -> None:
        """Loads a page of ours and waits for its first picture."""
        self.go(file.resolve().as_uri(), "document.documentElement?.dataset.ready !== undefined && window.timeline !== undefined",
                width, height, dark)

    def go(self, url: str, ready: str, width: int = 1400, height: int = 800, dark: bool = False) -> None:
        """Loads any page and waits until an expression is true."""
        self.events.clear()
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.ask("Page.navigate", url=url)
        self.wait(ready)

    def choose_files(self, selector: str, *files: Path) -> None:
        """As a person does in the dialog of a file input."""
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        found = self.ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.ask("DOM.setFileInputFiles", nodeId=found, files=[str(file.resolve()) for file in files])

    def js(self, expression: str) -> Any:
        """Value of an expression; a promise is awaited."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 30) -> None:
        """Until an expression is true, looked at every 15 ms."""
        looking = (f"new Promise((done) => {{ const end = Date.now() + {seconds * 1000}; const look = () => ({expression}) ? done(true) : "
                   "Date.now() > end ? done(false) : setTimeout(look, 15); look(); })")
        assert self.js(looking), f"not within {seconds} s: {expression}"

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """mouseMoved, mousePressed, mouseReleased or mouseWheel, as from a real mouse."""
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def drag(self, x: float, y: float, to: float, modifiers: int = 0) -> None:
        self.mouse("mousePressed", x, y, button="left", clickCount=1, modifiers=modifiers)
        for place in (x + (to - x) / 2, to):
            self.mouse("mouseMoved", place, y, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", to, y, button="left", clickCount=1, modifiers=modifiers)

    def key(self, key: str) -> None:
        """One key, with the text that it types."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self) -> bytes:
        """A PNG of the window."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def told(self, *methods: str) -> list[dict[str, Any]]:
        """Events so far of these kinds."""
        self.js("0")
        return [event for event in self.events if event.get("method") in methods]


class _Browser:
    """The process, for the length of a block."""

    def __init__(self, profile: Path) -> None:
        folder = chromium()
        request_read, self._requests = os.pipe()
        self._answers, answer_write = os.pipe()
        env = {"PATH": os.environ["PATH"], "HOME": str(profile), "LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_PATH": str(folder)}
        # The protocol's pipe is file descriptors 3 and 4 of the browser.
        plumbing = f"exec 3<&{request_read} 4>&{answer_write}; exec \"$@\""
        self.process = subprocess.Popen(
            ["bash", "-c", plumbing, "bash", folder / "chromium", f"--user-data-dir={profile}", *OPTIONS], env=env,
            pass_fds=(request_read, answer_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(request_read)
        os.close(answer_write)

    def __enter__(self) -> Page:
        return Page(self._requests, self._answers)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._requests)
        self.process.terminate()
        self.process.wait(10)
        os.close(self._answers)


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A fresh browser with one page."""
    with _Browser(profile) as page:
        yield page
