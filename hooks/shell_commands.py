"""What a line of shell would run: its simple commands, found through quotes, pipes, substitutions and wrappers. Nothing is run.

Good enough to recognise a program and its options; a name that is put together at run time (`$CMD`) stays unrecognised.
"""

from __future__ import annotations

import os
import re
from typing import Iterator

TEXT_LIMIT = 200_000
DEPTH_LIMIT = 6
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_KEYWORDS = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{", "}", "time", "coproc"))
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash"))
# Programs that run the command behind their own options -> the options that take a value of their own.
_WRAPPERS = {
    "sudo": ("-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-r", "-t", "-U", "--user", "--group", "--host", "--prompt", "--chdir"),
    "doas": ("-u", "-C"), "env": ("-u", "-C", "--unset", "--chdir"),
    "nohup": (), "setsid": (), "command": (), "builtin": (), "exec": ("-a",),
    "nice": ("-n", "--adjustment"), "ionice": ("-c", "-n", "-p", "--class", "--classdata"), "stdbuf": ("-i", "-o", "-e"),
    "timeout": ("-k", "-s", "--kill-after", "--signal"), "taskset": (), "chrt": (), "unbuffer": (), "catchsegv": (),
    "numactl": ("-m", "-N", "-C", "-i", "-p"), "xargs": ("-n", "-P", "-I", "-L", "-d", "-a", "-s"), "watch": ("-n", "--interval"),
    "strace": ("-o", "-e", "-p"), "time": ("-f", "-o"),
}
_OWN_ARGUMENTS = {"timeout": 1, "taskset": 1, "chrt": 1}
"""How many arguments of its own a wrapper has before the command."""


class Command:
    """One simple command. late: it runs when the shell ends (`trap ... EXIT`)."""

    def __init__(self, words: list[str], body: str = "", late: bool = False) -> None:
        self.words = words
        self.body = body
        """What a here-document feeds to it."""
        self.late = late

    @property
    def name(self) -> str:
        """The program's name without its folder."""
        return os.path.basename(self.words[0])


def commands(text: str) -> list[Command]:
    """The simple commands of `text` in their order, wrappers such as sudo, env and `bash -c` taken off."""
    found: list[Command] = []
    for command in _split(text[:TEXT_LIMIT], 0):
        found.extend(_unwrap(command, 0))
    return found


def _split(text: str, depth: int) -> list[Command]:
    return _Splitter(text, depth).split() if depth <= DEPTH_LIMIT else []


class _Splitter:
    """One pass over a shell text."""

    def __init__(self, text: str, depth: int) -> None:
        self.text = text
        self.depth = depth
        self.place = 0
        self.found: list[Command] = []
        self.words: list[str] = []
        self.word: list[str] | None = None
        self.target_of = ""
        """The redirection whose target the next word is."""
        self.wanted: list[tuple[str, bool, list[str]]] = []
        """Here-documents to come: delimiter, whether tabs are stripped, the words of the command that reads it."""
        self.inner: list[Command] = []

    def split(self) -> list[Command]:
        text = self.text
        while self.place < len(text):
            character = text[self.place]
            if character == "\\":
                if text[self.place + 1 : self.place + 2] != "\n":
                    self._add(text[self.place + 1 : self.place + 2])
                self.place += 2
            elif character == "'":
                self._add(self._until("'"))
            elif text.startswith("$'", self.place):
                self.place += 1
                self._add(self._until("'", escapes=True))
            elif character == '"':
                self._double_quoted()
            elif text.startswith(("$(", "<(", ">(", "`"), self.place):
                self._substitution()
            elif character == "#" and self.word is None:
                end = text.find("\n", self.place)
                self.place = len(text) if end < 0 else end
            elif character in " \t\r":
                self._end_word()
                self.place += 1
            elif character in "<>" or text.startswith("&>", self.place):
                self._redirection()
            elif character in ";|&()\n":
                self._end_command()
                self.place += 1
                if character == "\n":
                    self._here_documents()
            else:
                self._add(character)
                self.place += 1
        self._end_command()
        return self.found

    def _add(self, part: str) -> None:
        if self.word is None:
            self.word = []
        self.word.append(part)

    def _end_word(self) -> None:
        if self.word is None:
            return
        word, self.word = "".join(self.word), None
        if not self.target_of:
            self.words.append(word)
        elif self.target_of.startswith("<<") and self.target_of != "<<<":
            self.wanted.append((word, self.target_of == "<<-", self.words))
        self.target_of = ""

    def _end_command(self) -> None:
        self._end_word()
        self.target_of = ""
        if self.words:
            self.found.append(Command(self.words))
        self.words = []
        self.found.extend(self.inner)
        self.inner = []

    def _until(self, mark: str, escapes: bool = False) -> str:
        """The text between the mark here and the next one; leaves the place behind that."""
        start = end = self.place + 1
        while end < len(self.text) and self.text[end] != mark:
            end += 2 if escapes and self.text[end] == "\\" else 1
        self.place = end + 1
        return self.text[start:end]

    def _double_quoted(self) -> None:
        self._add("")
        self.place += 1
        while self.place < len(self.text) and self.text[self.place] != '"':
            if self.text.startswith(("$(", "`"), self.place):
                self._substitution()
            elif self.text[self.place] == "\\" and self.text[self.place + 1 : self.place + 2] in ('"', "\\", "$", "`", "\n"):
                self._add(self.text[self.place + 1].replace("\n", ""))
                self.place += 2
            else:
                self._add(self.text[self.place])
                self.place += 1
        self.place += 1

    def _substitution(self) -> None:
        """`$(...)`, backticks or a process substitution: what is inside runs too; the word gets a placeholder."""
        if self.text[self.place] == "`":
            inside = self._until("`", escapes=True)
        else:
            start = self.place + 2
            self.place = _closing(self.text, start) + 1
            inside = self.text[start : self.place - 1]
        self._add("$()")
        self.inner.extend(_split(inside, self.depth + 1))

    def _redirection(self) -> None:
        if self.word is not None and "".join(self.word).isdigit():
            self.word = None  # a descriptor's number
        self._end_word()
        match = re.compile(r"&>>?|<<<|<<-|<<|<>|>>|>\||[<>]&|[<>]").match(self.text, self.place)
        assert match is not None
        self.target_of = match.group()
        self.place = match.end()

    def _here_documents(self) -> None:
        for delimiter, tabs, reader in self.wanted:
            body: list[str] = []
            while self.place < len(self.text):
                end = self.text.find("\n", self.place)
                end = len(self.text) if end < 0 else end
                line = self.text[self.place : end]
                self.place = end + 1
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
                body.append(line)
            for command in self.found:
                if command.words is reader:
                    command.body = "\n".join(body)
        self.wanted = []


def _closing(text: str, place: int) -> int:
    """Where the parenthesis that was opened before `place` closes, quotes respected; the text's end if it never does."""
    depth = 1
    while place < len(text):
        character = text[place]
        if character == "\\":
            place += 1
        elif character in "'\"":
            end = place + 1
            while end < len(text) and text[end] != character:
                end += 2 if character == '"' and text[end] == "\\" else 1
            place = end
        elif character in "()":
            depth += 1 if character == "(" else -1
            if depth == 0:
                return place
        place += 1
    return len(text)


def _unwrap(command: Command, depth: int) -> Iterator[Command]:
    """The command behind wrappers, or the commands of a shell's -c, eval or trap."""
    words = list(command.words)
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in _KEYWORDS):
        del words[0]
    if not words or depth > DEPTH_LIMIT:
        return
    name = os.path.basename(words[0])
    text = ""
    if name in _SHELLS:
        text = _shell_text(words) or command.body
    elif name == "eval":
        text = " ".join(words[1:])
    elif name == "trap" and len(words) > 2:
        for inner in _split(words[1], depth + 1):
            inner.late = True
            yield from _unwrap(inner, depth + 1)
        return
    if text:
        for inner in _split(text, depth + 1):
            inner.late = inner.late or command.late
            yield from _unwrap(inner, depth + 1)
    elif name in _WRAPPERS:
        rest = _behind(name, words[1:])
        if rest:
            yield from _unwrap(Command(rest, command.body, command.late), depth + 1)
    elif words[:2] == ["uv", "run"]:
        yield from _unwrap(Command(_behind("uv", words[2:]), command.body, command.late), depth + 1)
    else:
        yield Command(words, command.body, command.late)


def _shell_text(words: list[str]) -> str:
    """What `bash -c TEXT` is given, "" without -c."""
    place = 1
    while place < len(words) and words[place].startswith(("-", "+")):
        if not words[place].startswith("--") and "c" in words[place][1:]:
            rest = [word for word in words[place + 1 :] if not word.startswith("-")]
            return rest[0] if rest else ""
        place += 2 if words[place] in ("-o", "+o", "-O", "--rcfile", "--init-file") else 1
    return ""


def _behind(name: str, words: list[str]) -> list[str]:
    """The command behind a wrapper's own options and arguments."""
    valued = _WRAPPERS.get(name, ())
    place = 0
    while place < len(words) and (words[place].startswith("-") or _ASSIGNMENT.match(words[place])):
        if words[place] == "--":
            place += 1
            break
        place += 2 if words[place] in valued else 1
    return words[place + _OWN_ARGUMENTS.get(name, 0) :]
