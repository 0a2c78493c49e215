"""What runs inside the workload's own process. Torch and the standard library only; started by path (start.py)."""
