"""The documents of mode ncu, on the recording of nine known kernels, as a reader sees them."""

from __future__ import annotations

import ncu_captures
from golden_files import assert_golden
from kernelwright.pipeline.ncu_profile import Setting, build_profile
from kernelwright.report import render_contract
from kernelwright.report.contract import TOKEN_LIMIT, token_count
from kernelwright.report.ncu_compare import compare_captures, render_captures
from kernelwright.report.ncu_documents import render_ncu_report


def test_report_and_contract_of_known_kernels():
    profile = build_profile(ncu_captures.known_details(), Setting(name="known_full"))
    report, contract = render_ncu_report(profile, ncu_captures.known_details(), {"k": "k"}), render_contract(profile)
    assert token_count(report) <= TOKEN_LIMIT and token_count(contract) < TOKEN_LIMIT
    assert_golden("report_ncu.md", report)
    assert_golden("contract_ncu.md", contract)


def test_comparison_of_a_strided_copy_with_a_coalesced_one():
    before, after = (ncu_captures.only(name) for name in ("copy_strided", "copy_float4"))
    assert_golden("compare_ncu.md", render_captures(compare_captures(("strided", before), ("coalesced", after))))
