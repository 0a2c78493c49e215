"""The seven examples optimised, one row each: original, best row of the torch.compile ladder and what was kept, timed in one command.

  python bench/optimize_table.py --device cuda --precisions equal,tf32,bf16 --shared --budget 120 --limit-s 560 --append
  python bench/optimize_table.py --device cpu --budget 60 --workloads mlp_activations
  python bench/optimize_table.py --device cuda --budget 60,180,480 --no-ladder --limit-s 590 --append --out build/budgets.json

Each row is written when it is done (--out FILE.json, and FILE.md with the tables and geometric means beside it); --append goes on with
what is missing and tries again what failed, so that the seven can be spread over several commands, and --limit-s ends a command in time.
--warm runs each twice; several --budget values show what each buys. --compiled MODE optimises the examples as a user would have them who
compiles them already, torch.compile(model, mode=MODE): "over the original" is then over that. --workloads also takes the example of a
training step and those of bench/workloads, for passes that have nothing to do in the seven: what waits for its host, loader or copies, has
independent branches or odd sizes.
With --check, exit 1 when a row is slower than the original or the mean of a precision is below --least / --least-over.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import optimize_page as page
import optimize_rows as rows

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
COMPILED = '''"""The example {module}, compiled beforehand."""

import sys

import torch

sys.path.insert(0, {folder!r})
from {module} import get_model_and_input as uncompiled  # noqa: E402


def get_model_and_input():
    """The example's, its model under torch.compile. Without gradients: pending ones keep the compiler off its CUDA graphs' fast path."""
    model, inputs = uncompiled()
    return torch.compile(model.requires_grad_(False), mode={mode!r}), inputs
'''
EXAMPLES = ("gpt2", "conv_block", "embedding_projection", "mlp_activations", "sdpa_attention", "depthwise_separable_conv",
            "lstm_sequence_encoder")
WORKLOADS = {path.stem: path for path in (*(rows.ROOT / "examples" / f"{name}.py" for name in (*EXAMPLES, "train_mlp_step")),
                                          *sorted((rows.ROOT / "bench" / "workloads").glob("*.py")))}


def main(argv: list[str] | None = None) -> int:
    """Measure what is missing; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=lambda text: text.split(","), default=list(EXAMPLES),
                        help="comma-separated (default: all seven)")
    parser.add_argument("--compiled", choices=MODES, metavar="MODE", help=f"compiled beforehand: {', '.join(MODES)}")
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is missed")
    parser.add_argument("--least", type=float, default=1.0, help="geometric mean over the original (default: 1.0)")
    parser.add_argument("--least-over", type=float, default=1.0, help="geometric mean over the best ladder row (default: 1.0)")
    rows.add_options(parser, "build/optimize_table.json")
    args = rows.checked(parser.parse_args(argv), parser)
    unknown = [name for name in args.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are: {', '.join(WORKLOADS)}")
    if args.check and not args.ladder:
        parser.error("--check needs the ladder (fix: leave out --no-ladder)")
    bench = rows.Bench(args, "optimize_table")
    bench.run([_workload(WORKLOADS[name], args) for name in args.workloads])
    bench.write()
    print(page.table(bench.document["rows"]))
    return 1 if args.check and not _reached(bench.document["rows"], args) else 0


def _workload(path: Path, args: argparse.Namespace) -> rows.WorkloadRef:
    if args.compiled is None:
        return rows.WorkloadRef(path=path, name=path.stem)
    name = f"{path.stem}_{args.compiled.replace('-', '_')}"
    text = COMPILED.format(module=path.stem, folder=str(path.parent), mode=args.compiled)
    return rows.WorkloadRef(path=rows.write_text_atomic(args.out.resolve().parent / "compiled" / f"{name}.py", text), name=name)


def _reached(found: list[dict], args: argparse.Namespace) -> bool:
    good = [row for row in found if "error" not in row and row["precision"] in args.precisions]
    groups = [[row for row in good if (row["precision"], row["budget_s"]) == key]
              for key in {(row["precision"], row["budget_s"]) for row in good}]  # a mean over several precisions would hide one of them
    return (len(good) == len(found) > 0 and all(row["speedup"] >= 1.0 and row["over"] is not None for row in good)
            and all(page.geometric_mean(row[key] for row in group) >= least
                    for group in groups for key, least in (("speedup", args.least), ("over", args.least_over))))


if __name__ == "__main__":
    sys.exit(main())
