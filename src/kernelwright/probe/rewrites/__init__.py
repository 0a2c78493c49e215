"""Rewrites: each file holds one self-contained function NAME(model, args, kwargs), copied as source into candidates.

`model` is an nn.Module or any callable, `args` and `kwargs` one call's arguments. The result is an nn.Module where later
rewrites may still look inside, else a callable. A rewrite never changes the model it is given (the generated file falls
back to it), raises NotImplementedError when it does not apply, and uses torch and the standard library alone.
"""
