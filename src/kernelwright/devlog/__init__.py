"""The append-only development log of a kernel: JSON lines for programs, Markdown rendered from them for people."""

from .entry import DevlogEntry, render_entry
from .log import DevlogFiles, add_entry, default_log, log_for, read_log, show

__all__ = ["DevlogEntry", "DevlogFiles", "add_entry", "default_log", "log_for", "read_log", "render_entry", "show"]
