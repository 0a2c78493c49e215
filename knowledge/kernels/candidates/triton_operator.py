"""A module with a Triton kernel that is registered as an operator: RMS norms in one pass, one program a row (as fused_norm.py).

Trigger: kernel_share=38% in aten::rms_norm. Has to fall; Kernels too. An operator is what torch.compile and profiles see as one; on a
CPU it is plain torch, so that everything but the kernel can be tried there. Without a gradient (torch.library.register_autograd).
"""

import torch
import torch.nn.functional as F
from torch import nn

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without Triton
    triton = None

WIDEST = 65536
"""Elements of a row that one program keeps on chip."""

if triton is not None:

    @triton.jit
    def rms_norm_kernel(out, x, weight, cols, eps, BLOCK: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        columns = tl.arange(0, BLOCK)
        inside = columns < cols
        values = tl.load(x + start + columns, mask=inside, other=0.0).to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / cols + eps)
        weights = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + start + columns, (values * scale * weights).to(out.dtype.element_ty), mask=inside)


@torch.library.custom_op("triton_operator::rms_norm", mutates_args=(), device_types="cuda")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    if triton is None:
        raise ModuleNotFoundError("this candidate needs the module 'triton' on a GPU", name="triton")
    x = x.contiguous()
    out, cols = torch.empty_like(x), x.shape[-1]
    block = triton.next_power_of_2(cols)
    rms_norm_kernel[(x.numel() // cols,)](out, x, weight, cols, eps, BLOCK=block, num_warps=min(16, max(1, block // 512)))
    return out


@rms_norm.register_kernel("cpu")
def _(x, weight, eps):
    return F.rms_norm(x.contiguous(), weight.shape, weight, eps)


@rms_norm.register_fake
def _(x, weight, eps):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class RMSNorm(nn.Module):
    def __init__(self, old):
        super().__init__()
        wide = torch.promote_types(old.weight.dtype, torch.float32)  # before 2.7 torch added a 16-bit type's own eps
        self.weight, self.eps = old.weight, torch.finfo(wide).eps if old.eps is None else old.eps

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)


def optimize(model, inputs):
    for name, old in list(model.named_modules()):
        if isinstance(old, nn.RMSNorm) and old.weight is not None and len(old.normalized_shape) == 1 and old.weight.numel() <= WIDEST:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, RMSNorm(old))
    return model  # torch.compile(model) fuses the rest
