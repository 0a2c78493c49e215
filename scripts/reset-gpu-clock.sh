#!/bin/sh
# Undo lock-gpu-clock.sh, or what a killed run left locked. --force: also what kernelwright did not lock.
exec "${PYTHON:-python3}" "$(dirname -- "$0")/gpu_clock.py" reset "$@"
