"""Ranks as a user names them: folders of recordings, options that do not go together, documents of any number of ranks."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from kernelwright.capture.ranks import free_port, rank_variables
from kernelwright.cli import main
from kernelwright.model.ranks import Ranks
from kernelwright.pipeline.ranks import rank_files
from kernelwright.report.ranks import MOST_DRAWN, render_ranks, tables, write_ranks
from kernelwright.report.ranks_figure import svg_and_png
from kernelwright.timeline.ranks import compare_ranks
from published_schemas import check_document
from ranks_made import Run, Talk, recordings
from trace_builder import TraceBuilder

SCRIPT = "import torch\n"


def _trace(path, arrive_us, *, steps=3, rank=None):
    """Steps of 1 ms with one all-reduce that ends at 900 us and a matrix product; launched at the start of each step."""
    built = TraceBuilder()
    for step in range(steps):
        at, number = step * 1_000_000, 2 * step
        built.step(at, at + 950_000).launch(number + 1, at + 1000, at + 2000).launch(number + 2, at + 3000, at + 4000)
        built.kernel("gemm", at + 10_000, at + 100_000, number + 1)
        built.event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + arrive_us * 1000, at + 900_000, pid=0, tid=20, device=0,
                    stream=20, correlation=number + 2, Collective_name="allreduce", Process_Group_Name="0", Process_Group_Ranks="[0, 1]",
                    Group_size=2, In_msg_nelems=1000, Out_msg_nelems=1000, dtype="Float", Seq=40 + step)
    text = built.text()
    if rank is not None:
        said = json.dumps({"backend": "nccl", "rank": rank, "world_size": 2})
        text = text.replace('"schemaVersion": 1,', f'"schemaVersion": 1, "distributedInfo": {said},')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _run(*argv, capsys):
    code = main(["profile_kernel", *map(str, argv), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_folder_of_recordings_is_compared(tmp_path, capsys):
    _trace(tmp_path / "in" / "b.json", 300, rank=0)
    _trace(tmp_path / "in" / "a.json", 700, rank=1)
    (tmp_path / "in" / "notes.json").write_text("{}")
    code, answer = _run(tmp_path / "in", "--out", tmp_path / "out", capsys=capsys)
    assert code == 0 and [path.rsplit("/", 1)[1] for path in answer["recordings"]] == ["b.json", "a.json"]
    document = json.loads((tmp_path / "out" / "ranks.json").read_text())
    check_document(document, "ranks")
    assert document["waits_for"] == [[0, 800_000], [0, 0]] and document["matched_by"] == "sequence"
    kind, = document["kinds"]
    assert (kind["kind"], kind["group"], kind["transfer_ns"]) == ("all_reduce", "0 [0, 1]", 400_000)
    assert (kind["last_rank"], kind["bytes"]) == (1, 8_000)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "csv" / "ranks.csv").read_text())))
    assert [row["exposed_waiting_ns"] for row in rows] == ["800000", "0"] and rows[1]["last"] == "2"
    assert "rank 0 waited 400.00 us for rank 1" in (tmp_path / "out" / "report.md").read_text()
    assert json.loads((tmp_path / "out" / "params.json").read_text())["mode"] == "nsys"


def test_ranks_are_read_off_names_where_recordings_do_not_say(tmp_path, capsys):
    for rank, arrive in ((0, 100), (10, 200), (2, 300)):
        _trace(tmp_path / "in" / f"run_rank-{rank}.json", arrive)
    code, _ = _run(tmp_path / "in", "--out", tmp_path / "out", capsys=capsys)
    found = Ranks.model_validate_json((tmp_path / "out" / "ranks.json").read_bytes())
    assert code == 0 and [row.rank for row in found.ranks] == [0, 2, 10] and found.missing == (1, *range(3, 10))
    assert "8 of 11 ranks have no recording" in found.warnings[0]


def test_recordings_are_found_in_folders_of_ranks_and_below_raw(tmp_path):
    for rank in (0, 1):
        _trace(tmp_path / "raw" / f"rank{rank}" / "trace.json", 100)
        _trace(tmp_path / "raw" / f"rank{rank}" / "trace_stacks.json", 100)
    assert [str(path.relative_to(tmp_path)) for path in rank_files(tmp_path)] == ["raw/rank0/trace.json", "raw/rank1/trace.json"]
    assert rank_files(tmp_path) == rank_files(tmp_path / "raw") and rank_files(tmp_path / "raw" / "rank0")[0].name == "trace.json"
    (tmp_path / "empty").mkdir()
    assert rank_files(tmp_path / "empty") == ()


@pytest.mark.parametrize(("names", "code"), [(("one.json", "two.json"), "no_rank"), (("rank1.json", "x_rank1.json"), "same_rank")])
def test_recordings_of_unknown_or_equal_ranks_are_refused(tmp_path, capsys, names, code):
    for name in names:
        _trace(tmp_path / "in" / name, 100)
    status, answer = _run(tmp_path / "in", "--out", tmp_path / "out", capsys=capsys)
    assert status == 2 and answer["error"]["code"] == code and answer["error"]["fix"]
    assert json.loads((tmp_path / "out" / "error.json").read_text())["code"] == code


def test_a_broken_recording_is_one_line(tmp_path, capsys):
    _trace(tmp_path / "in" / "rank0.json", 100)
    (tmp_path / "in" / "rank1.json").write_text('{"traceEvents": [{"ph": "X"')
    assert main(["profile_kernel", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "out" / "ranks.json").exists()


@pytest.mark.parametrize("argv", [("--steps", "3"), ("--ranks", "2"), ("v4",), ("--b=3",), ("--", "x")])
def test_options_of_a_run_are_refused_for_recordings(tmp_path, capsys, argv):
    _trace(tmp_path / "rank0.json", 100)
    assert main(["profile_kernel", str(tmp_path), "--json", *argv]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "report_not_run"


@pytest.mark.parametrize(("source", "argv", "code"), [
    (SCRIPT, ("--mode", "event"), "ranks_of_mode"), (SCRIPT, ("--sandbox",), "not_with_ranks"),
    (SCRIPT, ("--baseline", "v1"), "not_with_ranks"),
    (SCRIPT, ("--warmup", "0"), "warmup_of_script"), ("def get_model_and_input(): ...\n", (), "ranks_of_workload")])
def test_what_does_not_go_with_ranks_is_refused_before_anything_runs(tmp_path, capsys, source, argv, code):
    (tmp_path / "w.py").write_text(source)
    status, answer = _run(tmp_path / "w.py", "--ranks", "2", *argv, capsys=capsys)
    assert status == 2 and answer["error"]["code"] == code


@pytest.mark.parametrize("count", ["1", "0", "65", "x"])
def test_numbers_of_ranks_that_can_not_be(tmp_path, capsys, count):
    (tmp_path / "w.py").write_text(SCRIPT)
    assert main(["profile_kernel", str(tmp_path / "w.py"), "--ranks", count]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_ranks_get_what_torchrun_sets():
    found = rank_variables(3, 4, 29500, {})
    assert {name: found[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                           "OMP_NUM_THREADS")} == {
        "RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": "1"}
    assert "OMP_NUM_THREADS" not in rank_variables(0, 2, 1, {"OMP_NUM_THREADS": "8"})
    assert 1024 <= free_port() < 65536


def _many(count, steps):
    """`count` ranks of which the last is late in every step."""
    return compare_ranks(_recorded(count, steps))


def _recorded(count, steps):
    talks = tuple(Talk("all_reduce", step, step, (*[step * 300_000 + 5] * (count - 1), step * 300_000 + 90_000), step * 300_000 + 99_000)
                  for step in range(steps))
    return recordings(Run(count, steps, 300_000, talks, (), (0,) * count, numbered=True))


def test_the_page_of_many_ranks_shows_those_that_stand_out(tmp_path):
    count = MOST_DRAWN + 4
    traces = _recorded(count, 2)
    files = write_ranks(compare_ranks(traces), "many", tmp_path, dict(traces), params_doc={})
    data = json.loads(files["timeline"].read_text().partition('id="data">')[2].partition("</script>")[0])
    groups = {lane["group"].partition(" · ")[0] for lane in data["lanes"]}
    assert len(groups) == MOST_DRAWN and f"rank {count - 1}" in groups, "the late one is shown"
    assert data["title"] == f"many: {MOST_DRAWN} of {count} ranks"
    assert f"Timeline: timeline.html ({MOST_DRAWN} ranks)." in files["report"].read_text()


def test_the_report_of_very_many_ranks_and_hostile_names_stays_bounded():
    found = _many(300, 3)
    hostile = "a|b\n# x <script>alert(1)</script> `y`" * 20
    kinds = tuple(found.kinds[0].model_copy(update={"kind": hostile, "group": hostile}) for _ in range(50))
    rows = tuple(row.model_copy(update={"device": hostile, "source": "=cmd|x"}) for row in found.ranks)
    text = render_ranks(found.model_copy(update={"kinds": kinds, "ranks": rows, "warnings": (hostile,) * 50}), hostile, picture=True)
    assert len(text) < 6000 and "<script" not in text.replace("\\<script", "") and "\n# x" not in text
    assert "| 299 |" in text and "288 more ranks are in csv/ranks.csv" in text
    assert "'=cmd" in tables(found.model_copy(update={"ranks": rows}))["ranks.csv"]


def test_pictures_of_equal_runs_are_equal_and_of_many_ranks_bounded():
    small, large = _many(3, 4), _many(200, 2)
    first, second = svg_and_png(small, "a $x$ <b>"), svg_and_png(small, "a $x$ <b>")
    assert first == second and b"<b>" not in first[0] and len(first[0]) < 200_000
    assert all(len(data) < 500_000 for data in svg_and_png(large, "large"))


def test_nothing_to_wait_for_is_said():
    run = Run(2, 2, 300, (), (), (0, 0), numbered=True)
    silent = compare_ranks([(rank, replace(trace, source="x")) for rank, trace in recordings(run)])
    text = render_ranks(silent, "quiet")
    assert "Warning: no collective was recorded" in text and "arrived last" not in text and "### Collectives" not in text
