"""Impossible speed."""


from hypothesis import given
from hypothesis import strategies as st

from kernelwright.judge.roofs import Finding, Need, Roofs, examine
from kernelwright.roofline.knowledge import datasheet

H200 = Roofs(datasheet("NVIDIA H200"), 0, 50 * 2**20)
CPU = Roofs(None, 2, None)
GIB = float(2**30)


def examined(need, roofs=H200, **changes):
    asked = {"candidate_ns": 1e6, "reference_ns": 1e9, "own_output_bytes": need.output_bytes, "ring": 1, "precision": "equal",
             "all_float32": True, **changes}
    return examine(need, roofs, **asked)


def test_outputs_written_faster_than_all_multiprocessors_can_store_are_a_cheat():
    need = Need(4 * GIB, 4 * GIB, None, None)  # 4 GiB at 33.5 TB/s: 128 us
    assert examined(need, candidate_ns=20e3).cheat.startswith("impossible speed: 20 us a call, and writing 4.1e+03 MiB of outputs")
    assert examined(need, candidate_ns=100e3) == Finding(), "within the margin"


def test_outputs_that_are_views_are_only_not_believed():
    found = examined(Need(4 * GIB, 4 * GIB, None, None), candidate_ns=20e3, own_output_bytes=0.0)
    assert found.cheat is None and "said to be views" in found.doubt


def test_less_than_a_launch_is_a_cheat_unless_the_reference_has_no_more():
    assert "one launch takes at least 0.5 us" in examined(Need(4.0, 4.0, None, None), candidate_ns=100.0).cheat
    assert examined(Need(4.0, 4.0, None, None), candidate_ns=100.0, reference_ns=200.0) == Finding()
    assert examined(Need(0.0, 4.0, None, None), candidate_ns=100.0) == Finding(), "a workload whose output is a view launches nothing"


def test_a_cpu_has_its_stores():
    assert "with the stores of 2 cores" in examined(Need(GIB, GIB, None, None), CPU, candidate_ns=1e5).cheat  # at least 1.3 ms
    assert examined(Need(GIB, GIB, 2 * GIB, 1e15), CPU, candidate_ns=2e6) == Finding(), "no datasheet, no other claim"


def test_bytes_that_cannot_lie_in_the_cache_raise_a_doubt():
    need = Need(1024.0, GIB, GIB, None)  # 0.9 GiB beyond the cache at 4.8 TB/s: 203 us
    assert "moving 924 MiB to and from memory at 4800 GB/s" in examined(need, candidate_ns=150e3).doubt
    assert examined(need, candidate_ns=210e3) == Finding()
    assert examined(need, candidate_ns=150e3, reference_ns=180e3) == Finding(), "the reference needs no more either"


def test_data_that_may_lie_in_the_cache_make_no_claim():
    assert examined(Need(1024.0, 2**20, 2 * 2**20, None), candidate_ns=2e3, ring=16) == Finding()
    assert examined(Need(1024.0, 2**20, 90 * 2**20, None), candidate_ns=2e3, ring=1) == Finding()


def test_fewer_operations_than_the_references_raise_a_doubt_and_accuse_nobody():
    need = Need(4 * 2**20, 4 * 2**20, 8 * 2**20, 494.5e9)  # 1 ms at TF32's peak
    found = examined(need, candidate_ns=0.5e6)
    assert found.cheat is None and "494 GFLOP at 494.5 TFLOP/s" in found.doubt
    assert examined(need, candidate_ns=0.5e6, precision="bf16") == Finding() == examined(need, candidate_ns=0.5e6, all_float32=False)


TIMES = st.floats(1e3, 1e9)


BYTES = st.floats(0, 2e9)


@given(BYTES, BYTES, st.floats(0, 1e15), TIMES, TIMES, st.integers(1, 16), st.sampled_from(["equal", "tf32", "bf16"]))
def test_a_candidate_at_the_datasheets_peaks_or_slower_is_never_doubted(outputs, inputs, flops, extra_ns, reference_ns, ring, precision):
    """It moves everything once at the memory's bandwidth and computes at the fastest peak of its precision, one after the other."""
    sheet = H200.sheet
    peak = 494.5 if precision == "equal" else 989.5 * 2
    honest_ns = (inputs + outputs) / sheet.bandwidth_gbs + flops / (peak * 1e3) + extra_ns
    need = Need(outputs, inputs, inputs + outputs, flops)
    assert examined(need, candidate_ns=honest_ns, reference_ns=reference_ns, ring=ring, precision=precision) == Finding()
