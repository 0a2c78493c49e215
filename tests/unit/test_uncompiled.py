"""A recording without the workload's own torch.compile that can't be used costs itself, not the workload's profile."""

from __future__ import annotations

from types import SimpleNamespace

import builders
from kernelwright.pipeline.uncompiled import UNCOMPILED_RESULT, with_uncompiled


def test_what_can_not_be_read_is_a_warning(tmp_path):
    document, run = builders.gpu_annotation(), SimpleNamespace(raw=tmp_path)
    assert with_uncompiled(document, run) == (document, None), "most workloads have none"
    (tmp_path / UNCOMPILED_RESULT).parent.mkdir()
    (tmp_path / UNCOMPILED_RESULT).write_text("{")
    warned, plain = with_uncompiled(document, run)
    assert plain is None and warned.operators == document.operators
    assert warned.warnings[-1] == ("the recording without the workload's own torch.compile can't be used: "
                                   "result.json is not a result of the probe")
