"""Rewrites: each file holds one self-contained function NAME(model, args, kwargs), copied as source into candidates.

`model` is an nn.Module or any callable, `args` and `kwargs` one call's arguments. The result is an nn.Module where later
rewrites may still look inside, else a callable. A rewrite leaves the model it is given as it is (the generated file falls
back to it), but for one: for a training step channels_last lays the model's own weights out anew, values kept, since gradients
must land in them. A rewrite raises NotImplementedError when it does not apply, and uses torch and the standard library alone.
"""
