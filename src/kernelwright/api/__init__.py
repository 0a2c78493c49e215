"""What programs call: `kernelwright.profile(...)` and `kernelwright.capture(...)` (docs/api.md)."""
