"""kernelwright.yaml: what it may say, and what becomes of a wrong or hostile one."""

import contextlib
import json
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import builders
from kernelwright.cli.main import main
from kernelwright.model.errors import BadInput
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline.profile import with_missing_stages
from kernelwright.pipeline.target import resolve_target
from kernelwright.project import PROJECT_FILE, accept, find, read_project
from kernelwright.project.names import natural, version_names


@pytest.fixture
def folder(tmp_path):
    for name in ("mla.py", "kernels/mla_v1.py", "kernels/mla_v2.py", "kernels/mla_v10.py", "gemm/v1/kernel.py", "gemm/v2/kernel.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("def forward(x): return x\ndef get_inputs(): return ()\nVERSIONS = {'a': forward}\n")
    return tmp_path


def written(folder, text):
    (folder / PROJECT_FILE).write_text(textwrap.dedent(text))
    return folder / PROJECT_FILE


def test_a_whole_project(folder):
    written(folder, """
        clocks: lock
        baseline: previous
        import_from: [build]
        kernels:
          mla:
            file: mla.py
            versions: "kernels/mla_v*.py:forward"
            params: {b: 32, dtype: bfloat16}
            sweep: {t: [1024, 4096]}
            stages: [qk, pv]
            device: cuda
            accepted: v2
            devlog: log/mla.md
            budgets:
              - {version: v10, params: {b: 64}, duration_us: 120, versus: v2, slower_pct: 3}
          gemm: {versions: gemm/v*/kernel.py, baseline: v1}
    """)
    (folder / "a" / "b").mkdir(parents=True)
    project = find(folder / "a" / "b")
    assert project is not None and project.folder == folder
    mla, gemm = project.kernels["mla"], project.kernels["gemm"]
    assert mla.version_names == ("v1", "v2", "v10") and mla.usual_version == "v10" and mla.previous("v10") == "v2"
    assert mla.previous("v1") is None and mla.accepted == "v2" and mla.sweep == {"t": (1024, 4096)} and mla.stages == ("qk", "pv")
    assert (mla.baseline.kind, gemm.baseline.kind, gemm.baseline.version) == ("previous", "version", "v1")
    [budget] = mla.budgets
    assert (budget.version, budget.params, budget.duration_us, budget.versus, budget.slower_pct) == ("v10", {"b": 64}, 120, "v2", 3)
    assert (folder / PROJECT_FILE).read_text().splitlines()[budget.line - 1].strip().startswith("- {version: v10")
    assert gemm.version_names == ("v1", "v2")
    ref = resolve_target("v10", None, {"t": "8"}, None, start=folder)
    assert (ref.path, ref.version, ref.kernel) == (folder / "mla.py", "v10", "mla")
    assert ref.source is not None and (ref.source.path, ref.source.function) == (folder / "kernels" / "mla_v10.py", "forward")
    assert ref.params == {"b": "32", "dtype": "bfloat16", "t": "8"} and ref.device == "cuda" and ref.import_from == (folder / "build",)
    own = resolve_target("gemm", None, {}, None, start=folder)
    assert own.path == folder / "gemm" / "v2" / "kernel.py" and own.version == "v2" and own.source is not None


def test_a_versions_own_file_is_that_version(folder):
    written(folder, "kernels: {mla: {file: mla.py, versions: {one: kernels/mla_v1.py:forward, two: kernels/mla_v1.py:other}}, "
                    "g: {versions: {x: gemm/v1/kernel.py}}}")
    assert resolve_target("gemm/v1/kernel.py", None, {}, None, start=folder).version == "x"
    with pytest.raises(BadInput, match="more than once") as caught:
        resolve_target("kernels/mla_v1.py", None, {}, None, start=folder)
    assert caught.value.fix == "name one of: mla one, mla two"
    assert resolve_target("kernels/mla_v1.py", "two", {}, None, start=folder).source.function == "other"


KERNEL = "kernels:\n  a:\n    file: mla.py\n"


@pytest.mark.parametrize(("text", "code", "line", "says"), [
    (KERNEL + "    fil: y", "unknown_key", 4, "known: accepted, baseline"), (KERNEL + "clock: lock", "unknown_key", 4, "known: baseline"),
    (KERNEL + "    sweep: {t: 4}", "bad_sweep", 4, "sweep: {t: [1024"), (KERNEL + "    sweep: {t: []}", "bad_sweep", 4, "e.g."),
    (KERNEL + "    stages: qk", "bad_stages", 4, "stages: [qk"), (KERNEL + "    device: tpu", "bad_device", 4, "device: cuda"),
    (KERNEL + "    versions: [v1]\n    baseline: v2", "no_such_version", 5, "one of: v1"),
    (KERNEL + "    versions: [v1]\n    default_version: v2", "no_such_version", 5, "one of: v1"),
    (KERNEL + "    versions: [v1, 2]", "bad_versions", 4, "e.g."),
    (KERNEL + "    versions: none_*.py", "bad_versions", 4, "no Python file fits"),
    (KERNEL + "    versions: ../*.py", "bad_versions", 4, "leaves the project"),
    (KERNEL + "    versions: /etc/*.py", "bad_versions", 4, "leaves"),
    (KERNEL + "    versions: {v1: nothing}", "bad_versions", 4, "no Python file"),
    (KERNEL + "    versions: [v1, v1]", "bad_versions", 4, "two versions are called 'v1'"),
    (KERNEL + "    versions: ['--all']", "bad_versions", 4, "begins with '-'"),
    (KERNEL + "    budgets:\n      - {version: v1}", "bad_budgets", 5, "needs a limit"),
    (KERNEL + "    budgets:\n      - {duration_us: 1}\n      - {duration_us: fast}", "bad_budgets", 6, "above 0"),
    (KERNEL + "    budgets:\n      - {duration_us: .inf}", "bad_budgets", 5, "above 0"),
    (KERNEL + "    budgets:\n      - {duration_us: 1, slower_pct: 3}", "bad_budgets", 5, "slower than what"),
    (KERNEL + "    budgets:\n      - {duration_us: 1, slower: 3}", "unknown_key", 5, "known: duration_us"),
    ("kernels:\n  a/b: {file: mla.py}", "bad_name", 2, "slash"), ("kernels:\n  1: {file: mla.py}", "bad_name", 2, "quotes"),
    ("kernels:\n  a: {versions: [v1]}", "no_kernel_file", 2, "no `file:`"), ("kernels:\n  a: 3", "no_kernel_file", 2, "add `file"),
    (KERNEL + "    file: other.py", "broken_yaml", 4, "given twice"), ("x: &x [*x]\n" + KERNEL, "unknown_key", 1, "known"),
    (KERNEL + "    params: &p {b: *p}", "bad_params", 4, "single values"),
    (KERNEL + "    params: {a: " + "[" * 3000 + "]" * 3000 + "}", "broken_yaml", 1, ""),
    (KERNEL + "    params: {b: " + "x" * 20_000 + "}", "broken_yaml", 4, "longer than"),
    (KERNEL + "    params: {b: 2024-01-01}", "bad_params", 4, "single values"),
    (KERNEL + "import_from: build", "bad_import_from", 4, "[build]"),
])
def test_a_fault_is_one_line_with_file_line_and_mend(folder, text, code, line, says):
    file = written(folder, text)
    with pytest.raises(BadInput) as caught:
        read_project(file)
    error = caught.value
    assert error.code == code and says in error.line() and error.fix and "\n" not in error.line() and len(error.line()) < 2500
    assert error.where.startswith(f"{file}:") and (code == "broken_yaml" or error.where.startswith(f"{file}:{line}")), error.where


def test_a_document_that_is_too_large_is_refused_unread(tmp_path):
    file = written(tmp_path, "#" * 250_001)
    with pytest.raises(BadInput, match="larger than 250000 bytes"):
        read_project(file)


def test_aliases_do_not_multiply(tmp_path):
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    file = written(tmp_path, "\n".join(["a0: &a0 [x]", *rows, "kernels: {k: {file: x.py}}"]))
    with pytest.raises(BadInput):
        read_project(file)


YAML_BITS = st.lists(st.sampled_from([
    "kernels", ":", " ", "\n", "  ", "{", "}", "[", "]", ",", "a", "file", "x.py", "versions", "*.py", "&a ", "*a", "<<: ", "- ", "'", '"',
    "!!", "!!python/object:os.system ", "|", ">", "#", "\t", "%", "?", "---", "...", "1e999", "~", "null", "\x00", "\udcff", "é",
    "params", "budgets",     "0x", "duration_us", "-", "2024-99-99", "sweep", "baseline",
]), max_size=40).map("".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(YAML_BITS, YAML_BITS.map(lambda tail: KERNEL + "    " + tail), st.text(max_size=60)))
def test_any_text_is_a_project_or_one_clear_line(tmp_path, text):
    file = tmp_path / PROJECT_FILE
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        read_project(file)
    except BadInput as error:
        assert str(file) in error.line() and "\n" not in error.line() and error.fix


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates())
VALUE = st.recursive(PLAIN, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)), max_leaves=8)
KEYS = ("file", "versions", "default_version", "params", "sweep", "stages", "devlog", "device", "accepted", "baseline", "budgets", "other")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(KEYS), VALUE, max_size=4), VALUE)
def test_values_of_any_type_are_taken_or_refused(tmp_path, entry, clocks):
    import yaml

    file = tmp_path / PROJECT_FILE
    with contextlib.suppress(UnicodeEncodeError):
        text = yaml.safe_dump({"kernels": {"k": {"file": "x.py", **entry}}, "clocks": clocks}, allow_unicode=True)
        file.write_text(text, encoding="utf-8")
        try:
            read_project(file)
        except BadInput as error:
            assert f"{file}:" in error.where and "\n" not in error.line() and error.fix


@given(st.lists(st.integers(0, 10**20), min_size=1, unique=True))
def test_versions_sort_by_their_numbers(numbers):
    assert sorted((f"v{n}" for n in numbers), key=natural) == [f"v{n}" for n in sorted(numbers)] or max(numbers) >= 10**18


def test_names_from_files(tmp_path):
    assert version_names([tmp_path / "mla_v2.py", tmp_path / "mla_v3b.py", tmp_path / "mla_fast.py", tmp_path / "other.py"], "mla") == \
        ["v2", "v3b", "fast", "other"]


ACCEPTING = [
    ("# mine\nkernels:\n  mla:  # the kernel\n    file: mla.py\n    versions: [v1, v2]\n    devlog: d.md  # kept\n",
     "# mine\nkernels:\n  mla:  # the kernel\n    file: mla.py\n    versions: [v1, v2]\n    accepted: v2\n    devlog: d.md  # kept\n"),
    ("kernels:\n  mla:\n    accepted: 'v1'   # since May\n    file: mla.py\n    versions: [v1, v2]\n",
     "kernels:\n  mla:\n    accepted: v2   # since May\n    file: mla.py\n    versions: [v1, v2]\n"),
    ("kernels: {mla: {file: mla.py, versions: [v1, v2]}}", "kernels: {mla: {file: mla.py, accepted: v2, versions: [v1, v2]}}"),
    ("kernels:\r\n  mla:\r\n    file: mla.py\r\n    versions: [v1, v2]\r\n",
     "kernels:\r\n  mla:\r\n    file: mla.py\r\n    accepted: v2\r\n    versions: [v1, v2]\r\n"),
]


@pytest.mark.parametrize(("text", "expected"), ACCEPTING)
def test_accepting_a_version_changes_that_and_nothing_else(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / PROJECT_FILE
    file.write_bytes(text.encode())
    before = read_project(file).kernels["mla"].accepted
    assert accept(file, "mla", "v2") == before and file.read_bytes().decode() == expected
    assert read_project(file).kernels["mla"].accepted == "v2" and accept(file, "mla", "v2") == "v2"


@pytest.mark.parametrize("name", ["off", "1.5", "0x1f", "v2", "2026-01-01", "ü"])
def test_an_accepted_version_may_have_any_name(name: str, tmp_path: Path) -> None:
    file = tmp_path / PROJECT_FILE
    file.write_text("kernels:\n  mla:\n    file: mla.py\n    versions: " + json.dumps(["v1", name]) + "\n")
    accept(file, "mla", name)
    assert read_project(file).kernels["mla"].accepted == name


@pytest.mark.parametrize("text", ["x: &a {file: mla.py, versions: [v1, v2]}\nkernels: {mla: *a, other: *a}",
                                  "kernels:\n  other: &a {file: mla.py, versions: [v1, v2]}\n  mla: *a\n"])
def test_shared_entries_are_left_alone(text: str, tmp_path: Path) -> None:
    file = tmp_path / PROJECT_FILE
    file.write_text(text)
    with pytest.raises(BadInput, match="without rewriting it"):
        accept(file, "mla", "v2")
    assert file.read_text() == text


def test_devlog_accept_names_what_stands_before_it(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / PROJECT_FILE).write_text("kernels:\n  mla:\n    file: mla.py\n    versions: [v1, v2]\n")
    (tmp_path / "mla.py").write_text("VERSIONS = {}\n")
    monkeypatch.chdir(tmp_path)
    assert main(["devlog", "accept", "v1"]) == 0 and "profile it" in capsys.readouterr().err
    assert main(["devlog", "accept", "mla", "v2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["accepted"], answer["before"]) == ("v2", "v1")
    for words, reason in ((["mla"], "which version of mla"), (["v9"], "v9"), (["a", "b", "c"], "3 words")):
        assert main(["devlog", "accept", *words]) == 2 and reason in capsys.readouterr().err


@pytest.mark.parametrize(("named", "missing"), [
    (("qk", "pv"), None), ((), None), (("qk", "proj"), "proj"), (("x", "softmax", "y"), "x, y"),
])
def test_a_stage_that_the_timeline_does_not_show_is_a_warning(named: tuple[str, ...], missing: str | None) -> None:
    workload = WorkloadRef(path=Path("mla.py"), name="mla", project=Path("kernelwright.yaml"), stages=named)
    document = builders.gpu_annotation()
    added = with_missing_stages(document, workload).warnings[len(document.warnings):]
    assert added == ((f"kernelwright.yaml names stages that this profile does not have: {missing}",) if missing else ())
    assert with_missing_stages(builders.event(), workload).warnings == builders.event().warnings  # mode event has no stages
