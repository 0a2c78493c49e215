"""GPU clocks of a run: locked where that is asked for and allowed, watched always. How: docs/clocks.md."""

from .device import DeviceClocks
from .load import torch_load
from .settings import valid_request

__all__ = ["DeviceClocks", "torch_load", "valid_request"]
