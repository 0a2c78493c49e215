RATE = 1e-3
