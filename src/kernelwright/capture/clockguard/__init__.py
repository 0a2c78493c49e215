"""Locks and resets GPU clocks, and sees to it that a lock is undone. Standard library only, so that the watchdog can start by path."""
