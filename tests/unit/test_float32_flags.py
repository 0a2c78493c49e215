"""TF32 through both of torch's interfaces: read, set for a while and put back, whichever of them the program used."""

from __future__ import annotations

import pytest
import torch

from float32_programs import PROGRAMS, in_a_fork, newer
from kernelwright.probe import environment, screen_look
from kernelwright.probe.rewrites import float32_flags as flags
from kernelwright.probe.rewrites.strict_float32 import strict_float32
from kernelwright.probe.rewrites.tf32 import tf32

backends = torch.backends


def read() -> tuple[bool, bool, bool]:
    now = flags.float32_flags()
    return flags.products_are_narrow(now), flags.convolutions_are_tf32(now), flags.recurrent_layers_are_tf32(now)


@pytest.mark.parametrize("program", PROGRAMS)
def test_flags_are_read_set_and_put_back_whoever_set_them(program):
    use, means = PROGRAMS[program]

    def check() -> None:
        use()
        before = flags.float32_flags()
        assert read() == means
        told = environment.describe("cpu")
        assert (told["matmul_tf32"], told["cudnn_tf32"]) == means[:2]
        seen = []
        assert tf32(lambda x: (seen.append(read()), 2 * x)[1], (), {})(3) == 6 and seen == [(True, True, True)]
        assert strict_float32(lambda x: (seen.append(read()), 3 * x)[1], (), {})(3) == 9 and seen[1:] == [(False, False, False)]
        assert flags.float32_flags() == before
        for on in (True, False):
            with flags.under_flags(flags.products_as(flags.float32_flags(), on)):
                assert read() == (on, *means[1:])
            assert flags.float32_flags() == before
        with pytest.raises(ZeroDivisionError), flags.under_flags(flags.all_as(before, tf32=True)):
            raise ZeroDivisionError
        assert flags.float32_flags() == before

    in_a_fork(check)


def test_what_nobody_had_set_follows_a_more_general_flag_afterwards():
    def check() -> None:
        for on in (True, False):
            with flags.under_flags(flags.all_as(flags.float32_flags(), tf32=on)):
                assert read() == (on, on, on)
        newer(all="tf32")()
        assert backends.cuda.matmul.fp32_precision == backends.mkldnn.matmul.fp32_precision == "tf32"

    in_a_fork(check)


def test_a_more_general_flag_that_is_followed_is_left_to_itself():
    def check() -> None:
        newer(all="tf32")()
        with flags.under_flags(flags.all_as(flags.float32_flags(), tf32=True)):
            pass
        backends.fp32_precision = "ieee"
        assert not flags.products_are_narrow(flags.float32_flags())

    in_a_fork(check)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_screen_sees_what_a_candidate_left_of_them(program):
    def check() -> None:
        PROGRAMS[program][0]()
        look = screen_look.Look.__new__(screen_look.Look)
        look.workload = type("Workload", (), {"model": staticmethod(lambda x: x)})
        before = look._state()
        assert look._state() == before
        flags.set_float32_flags(flags.products_as(flags.float32_flags(), not read()[0]))
        assert look._state() != before

    in_a_fork(check)
