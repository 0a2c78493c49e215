import subprocess
import sys
import time


def optimize(model, inputs):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)", "kernelwright-judge-test-child"])

    def call(x):
        time.sleep(120)

    return call
