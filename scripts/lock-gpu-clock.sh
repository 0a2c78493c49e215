#!/bin/sh
# Lock the GPU's clocks until reset-gpu-clock.sh: lock-gpu-clock.sh [MHZ]. Without MHZ: the highest clock that is held under load.
exec "${PYTHON:-python3}" "$(dirname -- "$0")/gpu_clock.py" lock "$@"
