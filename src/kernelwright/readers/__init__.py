"""Readers: the profilers' own files -> event tables in int64 nanoseconds."""
