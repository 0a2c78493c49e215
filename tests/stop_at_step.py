"""A training script by itself, ended where a profile ends it: `python -c STOP_AT_STEP STEPS SCRIPT ...`."""

STOP_AT_STEP = """
import runpy, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
stop, sys.argv = int(sys.argv[1]), sys.argv[2:]
count = 0
def hook(optimizer, args, kwargs):
    global count
    count += 1
    if count == stop:
        sys.exit(0)
register_optimizer_step_post_hook(hook)
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
