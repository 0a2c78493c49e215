"""Starts the probe in the workload's own interpreter, one at a time, and brings back the files it wrote."""
