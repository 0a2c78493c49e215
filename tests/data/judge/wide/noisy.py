import sys


def optimize(model, inputs):
    def call(x):
        while True:
            sys.stdout.write("x" * 1_000_000)

    return call
