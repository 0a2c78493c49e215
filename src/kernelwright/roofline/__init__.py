"""Ceilings of a device and where a workload and its stages stand against them."""
