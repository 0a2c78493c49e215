"""Finds kernelwright's own environment, or makes it on first use.

Runs before any dependency exists, so it is the standard library alone, and imports nothing else of ours. The environment
holds dependencies only, as pinned in requirements.lock; kernelwright's code runs from the checkout's src/.
"""
