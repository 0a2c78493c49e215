import os
import signal


def optimize(model, inputs):
    def call(x):
        os.kill(os.getpid(), signal.SIGSEGV)

    return call
