"""kernelwright: profiles GPU workloads, finds the bottleneck, tries improvements and judges them."""

__version__ = "0.1.0"
