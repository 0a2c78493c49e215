"""Measurement: order statistics, their coverage, and when it calls itself suspect."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.model.measurement import Measurement, median_interval

TIMES = st.lists(st.floats(min_value=1e-3, max_value=1e12), min_size=1, max_size=200)


@given(TIMES)
def test_median_lies_in_its_interval_and_in_the_data(samples):
    measured = Measurement.of(samples, timer="perf_counter")
    assert min(samples) <= measured.ci95_low_ns <= measured.median_ns * (1 + 1e-12)
    assert measured.median_ns <= measured.ci95_high_ns * (1 + 1e-12) <= max(samples) * (1 + 1e-9)
    assert measured.samples == len(samples) and measured.iqr_ns >= 0


@pytest.mark.parametrize(("n", "low", "high"), [(6, 1, 6), (10, 2, 9), (20, 6, 15), (30, 10, 21), (50, 18, 33)])
def test_interval_is_the_textbook_pair_of_order_statistics(n, low, high):
    # Table values: Conover, Practical Nonparametric Statistics, 3rd ed., table A3 (p = 1/2, 95%).
    assert median_interval(np.arange(1.0, n + 1)) == (low, high)


def test_interval_covers_the_true_median_at_least_95_percent_of_the_time():
    rng = np.random.default_rng(7)
    rows = np.sort(rng.lognormal(size=(2000, 25)), axis=1)
    covered = sum(low <= 1.0 <= high for low, high in map(median_interval, rows))
    assert covered / 2000 >= 0.94


def test_noise_and_few_samples_are_called_out():
    assert "noisy" in (Measurement.of([1, 2, 3, 4, 5, 6], timer="t").warning or "")
    assert "only 2 samples" in (Measurement.of([1, 1], timer="t").warning or "")
    assert Measurement.of([100.0] * 9 + [900.0], timer="t").warning is None
    two_groups = Measurement.of([40.0] * 2 + [100.0] * 6 + [101.0] * 1, timer="t")
    assert two_groups.iqr_ns < 10 and "interval of the median reaches from 40% to 100%" in (two_groups.warning or "")


def test_no_interval_is_told_from_a_few_samples():
    assert Measurement.of([7.0], timer="t").interval_ns is None and Measurement.of([7.0] * 4, timer="t").interval_ns is None
    assert Measurement.of([1.0, 2.0, 3.0, 4.0, 5.0], timer="t").interval_ns == (1.0, 5.0)
    assert Measurement.of([7.0], timer="t").warning == "only 1 sample"


@pytest.mark.parametrize("bad", [[], [math.nan, 1.0], [math.inf], [-1.0]])
def test_impossible_samples_are_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        Measurement.of(bad, timer="t")
