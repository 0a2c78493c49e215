"""`python3 run.py NAME` runs the hook NAME.py: one JSON object in on stdin, at most one out on stdout, always exit 0.

A fault of a hook must not reach the session, so this outer edge swallows everything, a hook's own syntax error on an old Python included.
This file must itself parse on any Python, so it has no annotations.
"""

import os
import sys

TIME_LIMIT_S = 5
INPUT_LIMIT = 16 * 1024 * 1024


def main():
    import signal

    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, lambda number, frame: os._exit(0))
        signal.alarm(TIME_LIMIT_S)
    import json

    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    text = sys.stdin.buffer.read(INPUT_LIMIT + 1)
    if len(text) > INPUT_LIMIT:
        return
    given = json.loads(text.decode("utf-8", "replace"))
    if not isinstance(given, dict):
        return
    answer = __import__(sys.argv[1]).answer(given)
    if answer:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # noqa: BLE001 - the outer edge: a hook never breaks a session
        os._exit(0)
    os._exit(0)
