"""What a user types, and which workload it means."""

import textwrap

import pytest

from kernelwright.model.errors import BadInput
from kernelwright.pipeline.forms import MAX_SOURCE_BYTES, syntax_fault
from kernelwright.pipeline.target import refuse_script, resolve_target


@pytest.fixture
def project(tmp_path):
    for name in ("softmax.py", "mla.py", "plain.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "kernelwright.yaml").write_text(textwrap.dedent("""
        kernels:
          softmax: {file: softmax.py, versions: [v1, v2], default_version: v2, params: {rows: 64, dtype: float16}, devlog: log/softmax.md}
          mla: {file: mla.py, versions: [v2, v4]}
    """))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    return tmp_path


def test_a_plain_file_is_named_after_itself(project):
    ref = resolve_target("plain.py", None, {"b": "3"}, None, start=project)
    assert (ref.path, ref.name, ref.version, ref.params) == (project / "plain.py", "plain", None, {"b": "3"})


def test_a_file_of_the_project_gets_the_projects_entry(project):
    ref = resolve_target("softmax.py", None, {"rows": "9"}, None, start=project)
    assert (ref.name, ref.version, ref.params) == ("softmax", "v2", {"rows": "9", "dtype": "float16"})
    assert ref.devlog == project / "log" / "softmax.md"


@pytest.mark.parametrize(("words", "kernel", "version"), [
    (("softmax", None), "softmax", "v2"), (("softmax", "v1"), "softmax", "v1"), (("v1", None), "softmax", "v1"),
    (("v4", None), "mla", "v4"),
])
def test_kernels_and_versions_resolve_from_any_subfolder(project, words, kernel, version):
    ref = resolve_target(*words, {}, None, start=project / "deep" / "er")
    assert (ref.name, ref.version, ref.path) == (kernel, version, project / f"{kernel}.py")


@pytest.mark.parametrize(("words", "code", "says"), [
    (("v2", None), "ambiguous_version", "mla v2 or softmax v2"),
    (("v9", None), "no_such_kernel", "softmax (v1, v2)"),
    (("softmax", "v9"), "no_such_version", "one of: v1, v2"),
    (("nothing", "v1"), "no_such_kernel", "mla, softmax"),
    (("gone.py", None), "no_such_workload", "path of the workload's Python file"),
    (("deep", None), "no_such_kernel", "mla (v2, v4)"),
    (("deep/", None), "is_folder", "path of the workload's Python file"),
])
def test_what_cannot_be_resolved_gives_the_choices(project, words, code, says):
    with pytest.raises(BadInput) as caught:
        resolve_target(*words, {}, None, start=project)
    assert caught.value.code == code and says in caught.value.line()
    assert "\n" not in caught.value.line()


@pytest.mark.parametrize(("text", "code"), [
    ("kernels: [", "broken_yaml"), ("kernels: 3", "no_kernels"), ("", "no_kernels"), ("kernels: {a: {}}", "no_kernel_file"),
    ("kernels: {a: {file: x.py, fil: y}}", "unknown_key"), ("kernels: {a: {file: x.py, params: 3}}", "bad_params"),
    ("kernels: {a: {file: x.py, versions: v1}}", "bad_versions"), ("kernels: {a: {file: x.py, params: {b: [1]}}}", "bad_params"),
    ("kernels: {a: {file: x.py, default_version: 4}}", "bad_default_version"), ("kernels: {a: {file: 2024-13-45}}", "broken_yaml"),
    ('kernels: {a: {file: "x\\0.py"}}', "broken_yaml"), ("a: !!python/object/apply:os.system ['true']", "broken_yaml"),
    ("kernels: {a: {file: x.py}}", "no_such_workload"), ("x: \x01", "broken_yaml"),
])
def test_a_broken_project_file_is_one_clear_line(tmp_path, text, code):
    (tmp_path / "kernelwright.yaml").write_text(text)
    with pytest.raises(BadInput) as caught:
        resolve_target("a", None, {}, None, start=tmp_path)
    assert caught.value.code == code and str(tmp_path) in caught.value.line() and "\n" not in caught.value.line()


def test_the_project_may_ask_for_clocks(project):
    file = project / "kernelwright.yaml"
    plain = file.read_text()
    assert resolve_target("softmax", None, {}, None, start=project).clocks is None
    for asked in ("lock", "none", "1500"):
        file.write_text(f"clocks: {asked}\n{plain}")
        assert resolve_target("softmax", None, {}, None, start=project).clocks == asked
        assert resolve_target("softmax.py", None, {}, None, start=project).clocks == asked
    for wrong in ("fast", "yes", "[lock]", "99", "1.5", "{a: b}"):
        file.write_text(f"clocks: {wrong}\n{plain}")
        with pytest.raises(BadInput, match="`clocks:` is"):
            resolve_target("softmax", None, {}, None, start=project)


def test_of_a_file_that_is_no_valid_python_the_line_is_told_not_that_it_is_a_script(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("import torch\n\ndef f(:\n    pass\n")
    with pytest.raises(BadInput) as caught:
        refuse_script(resolve_target(str(file), None, {}, None), "optimize")
    assert caught.value.code == "syntax_error" and str(caught.value.where) == f"{file}:3" and "invalid syntax" in caught.value.line()
    file.write_text("text = '''" + "x" * MAX_SOURCE_BYTES + "'''\n")
    assert syntax_fault(file) is None, "what is read of it ends amid a line"


@pytest.mark.parametrize(("text", "words"), [
    ("print('a script')", "no entry point"), ("VERSIONS = {}", "VERSIONS and no get_inputs()"),
    ("class Model:\n    pass", "Model and no get_inputs()"),
    ("def get_inputs():\n    pass", "get_inputs() and neither Model nor VERSIONS")])
def test_where_a_script_is_not_taken_it_is_told_what_the_file_lacks(tmp_path, text, words):
    file = tmp_path / "half.py"
    file.write_text(f"{text}\n")
    with pytest.raises(BadInput) as caught:
        refuse_script(resolve_target(str(file), None, {}, None), "optimize")
    assert caught.value.code == "script_not_taken" and f"the file has {words}, so it is a script" in caught.value.line()
