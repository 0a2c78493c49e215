"""Bundles: what goes in, what never does, and what a foreign one is refused for."""

import hashlib
import io
import json
import lzma
import os
import sys
import tarfile
from pathlib import Path

import pytest

from kernelwright.judge import JudgeOptions, rejudge
from kernelwright.judge.bundle import BUNDLE_VERSION, Bundled, against, read_bundle, write_bundle
from kernelwright.judge.scrub import Scrubber
from kernelwright.judge.sources import MAX_FILES, collect
from kernelwright.model.errors import BadInput, MachineLacks
from kernelwright.model.verdict import Verdict
from kernelwright.model.workload import WorkloadRef

SECRET = "sk-hush-8d41aa17e2"
WORKLOAD = "import helper\nfrom pack.part import x\nimport torch\n\n\ndef get_model_and_input():\n    return torch.relu, torch.ones(2)\n"
CANDIDATE = "from w import get_model_and_input\nSOURCE = 'kernel.cu'\n\n\ndef optimize(model, inputs):\n    import late\n    return model\n"


def verdict_of(workload, candidate, **changes):
    digest = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (workload, candidate)]
    values = {"verdict": "SAME", "precision": "equal", "workload": str(workload), "candidate": str(candidate), "seed": 99,
              "workload_sha256": digest[0], "candidate_sha256": digest[1], "device_name": "NVIDIA H200", "torch_version": "2.11.0",
              "speedup": 1.0, "interval": (0.99, 1.01), "environment": {"python_version": "3.12.3", "driver_version": "570.86"}}
    return Verdict(**{**values, **changes})


@pytest.fixture
def folder(tmp_path):
    """A workload and a candidate beside each other, with what they import and what they don't."""
    place = tmp_path / "home of somebody" / "work"
    (place / "pack").mkdir(parents=True)
    for name, text in {"w.py": WORKLOAD, "c.py": CANDIDATE, "helper.py": "import deeper\n", "deeper.py": "y = 1\n", "late.py": "z = 1\n",
                       "unused.py": f"token = '{SECRET}'\n", "pack/__init__.py": "", "pack/part.py": "x = 1\n", "kernel.cu": "// cu\n",
                       "torch_data.pt": "weights", ".env": f"TOKEN={SECRET}"}.items():
        (place / name).write_text(text)
    return place


def packed(folder, path, candidate="c.py", **changes):
    workload = folder / "w.py"
    sources = collect(WorkloadRef(path=workload, name="w"), folder / candidate)
    params = changes.pop("params", {"b": "32"})
    return write_bundle(path, sources, WorkloadRef(path=workload, name="w", params=params), JudgeOptions(keep_dir=folder, rounds=4, seed=5),
                        verdict_of(workload, folder / candidate, **changes))


def test_a_bundle_holds_the_files_that_belong_to_it_and_no_others(folder, tmp_path):
    opened = read_bundle(packed(folder, tmp_path / "b.tar.xz"))
    assert sorted(opened.files) == ["code/c.py", "code/deeper.py", "code/helper.py", "code/kernel.cu", "code/late.py",
                                    "code/pack/__init__.py", "code/pack/part.py", "code/w.py"]
    assert opened.files["code/c.py"].decode() == CANDIDATE and opened.contents.params == {"b": "32"} and opened.contents.seed == 99
    assert opened.verdict.verdict == "SAME" and opened.verdict.device_name == "NVIDIA H200"
    options = opened.options(device="cpu", python="/usr/bin/python3")
    assert (options.rounds, options.seed, options.device, options.python, options.keep_dir) == (4, 99, "cpu", "/usr/bin/python3", None)
    workload, candidate = opened.extract(tmp_path / "out")
    assert workload.path.read_text() == WORKLOAD and candidate.read_text() == CANDIDATE and workload.params == {"b": "32"}
    for words in ("b.tar.xz", hashlib.sha256(CANDIDATE.encode()).hexdigest(), "SAME", "NVIDIA H200", "about to run"):
        assert words in opened.announce()


def test_the_same_verdict_gives_the_same_bytes(folder, tmp_path):
    first = packed(folder, tmp_path / "1.tar.xz").read_bytes()
    os.utime(folder / "w.py", (1, 1))
    (folder / "c.py").chmod(0o600)
    assert packed(folder, tmp_path / "2.tar.xz").read_bytes() == first


def test_nothing_of_this_machine_is_in_it(folder, tmp_path, monkeypatch):
    """Neither an environment variable's value, wherever it was printed, nor a folder of the user's, nor the machine's options."""
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("API_TOKEN", SECRET)
    monkeypatch.setenv("PYTHON_VERSION", "3.12.3")
    reasons = (f"ValueError: no {SECRET} in {folder}/c.py:3", f"from {folder.parent}/.cache/x.so", "at /opt/secret-project/run/k.cu:7 too")
    path = packed(folder, tmp_path / "b.tar.xz", verdict="FAILED", reasons=reasons, params={"data": str(folder / "set.bin")})
    everything = lzma.decompress(path.read_bytes()).decode("latin-1")
    for words in (SECRET, "somebody", str(tmp_path), "secret-project", os.getcwd(), '"python"', "keep_dir", "API_TOKEN"):
        assert words not in everything, words
    told = json.loads(read_bytes_of(path, "verdict.json"))
    assert told["reasons"] == ["ValueError: no [removed] in c.py:3", "from x.so", "at k.cu:7 too"]
    assert told["environment"]["python_version"] == "3.12.3" and told["workload"] == "code/w.py"
    assert read_bundle(path).contents.params == {"data": "set.bin"}
    with tarfile.open(path) as archive:
        assert all((one.uid, one.gid, one.uname, one.gname, one.mtime) == (0, 0, "", "", 0) for one in archive)


def read_bytes_of(path, name):
    with tarfile.open(path) as archive:
        return archive.extractfile(name).read()


def test_a_candidate_elsewhere_keeps_its_own_folder(folder, tmp_path):
    other = tmp_path / "other" / "candidates"
    other.mkdir(parents=True)
    (other / "c.py").write_text("import beside, above, helper\n\n\ndef f(x):\n    return x\n")
    (other / "beside.py").write_text("")
    (other.parent / "above.py").write_text("")
    found = collect(WorkloadRef(path=folder / "w.py", name="w"), other / "c.py")
    assert found.candidate == "candidate/candidates/c.py" and found.workload == "workload/w.py"
    assert {"candidate/candidates/beside.py", "candidate/above.py", "workload/helper.py"} <= found.files.keys()
    inside = folder / "candidates"
    inside.mkdir()
    (inside / "d.py").write_text("import w\n")
    assert collect(WorkloadRef(path=folder / "w.py", name="w"), inside / "d.py").candidate == "code/candidates/d.py"


def test_a_candidate_cannot_pull_in_files_from_elsewhere(folder, tmp_path):
    (tmp_path / "private.h").write_text(SECRET)
    (folder / "linked.h").symlink_to(tmp_path / "private.h")
    (folder / "c.py").write_text(f"A = 'linked.h'\nB = '../../private.h'\nC = {str(tmp_path / 'private.h')!r}\nD = '.env'\n")
    found = collect(WorkloadRef(path=folder / "w.py", name="w"), folder / "c.py").files
    assert not [name for name, data in found.items() if SECRET.encode() in data]


def test_a_source_that_python_cannot_read_goes_alone(folder):
    (folder / "c.py").write_bytes(b"import helper\ndef f(:\n")
    assert "code/c.py" in collect(WorkloadRef(path=folder / "w.py", name="w"), folder / "c.py").files


def test_a_file_that_changed_meanwhile_is_not_bundled(folder, tmp_path):
    sources = collect(WorkloadRef(path=folder / "w.py", name="w"), folder / "c.py")
    verdict = verdict_of(folder / "w.py", folder / "c.py", candidate_sha256="0" * 64)
    with pytest.raises(BadInput, match="changed between") as error:
        write_bundle(tmp_path / "b.tar.xz", sources, WorkloadRef(path=folder / "w.py", name="w"), JudgeOptions(), verdict)
    assert error.value.code == "changed_meanwhile" and not (tmp_path / "b.tar.xz").exists()


def test_too_many_files_are_refused(folder):
    (folder / "pack" / "more").mkdir()
    for number in range(MAX_FILES):
        (folder / "pack" / "more" / f"m{number}.py").write_text("")
    with pytest.raises(BadInput) as error:
        collect(WorkloadRef(path=folder / "w.py", name="w"), folder / "c.py")
    assert error.value.code == "bundle_too_large"


def archive(*entries, change=lambda info: None):
    """An xz archive of (name, bytes) entries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            change(info)
            made.addfile(info, io.BytesIO(data))
    return lzma.compress(buffer.getvalue())


def good(**changes):
    files = {"code/w.py": b"w = 1\n", "code/c.py": b"c = 1\n"}
    contents = {"format": "kernelwright-bundle", "bundle_version": BUNDLE_VERSION, "kernelwright_version": "0.1.0", "workload": "code/w.py",
                "candidate": "code/c.py", "name": "w", "version": None, "params": {}, "options": {}, "seed": 1,
                "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}, **changes}
    return [("bundle.json", json.dumps(contents).encode()), ("verdict.json", b'{"verdict": "SAME"}'), *files.items()]


def kind(value):
    def change(info):
        if info.name == "code/c.py":
            info.type, info.size, info.linkname = value, 0, "/etc/passwd"
    return change


HOSTILE = {
    "text": (b"hello", "not_a_bundle", "no xz archive"), "empty": (b"", "not_a_bundle", "no xz archive"),
    "six bytes": (b"\xfd7zXZ\0", "broken_bundle", "cut off"),
    "truncated": (archive(*good())[:-40], "broken_bundle", "cut off"),
    "damaged": (archive(*good())[:60] + b"\0" * 40 + archive(*good())[100:], "not_a_bundle", "damaged"),
    "no tar": (lzma.compress(b"x" * 4096), "not_a_bundle", "no tar"),
    "foreign tar": (archive(("code/readme.py", b"hi")), "not_a_bundle", "another archive"),
    "other json": (archive(*good(format="x")), "not_a_bundle", "does not say"),
    "newer": (archive(*good(bundle_version=9)), "bundle_too_new", "version 9"),
    "no seed": (archive(*good(seed=-1)), "broken_bundle", "seed"),
    "bomb": (lambda: lzma.compress(b"\0" * (200 << 20), preset=0), "bundle_too_large", "unpacks to more"),  # made when needed
    "parent": (archive(*good(), ("code/../../x.py", b"")), "unsafe_bundle", "leads"),
    "absolute": (archive(*good(), ("/etc/x.py", b"")), "unsafe_bundle", "leads"),
    "elsewhere": (archive(*good(), ("src/x.py", b"")), "unsafe_bundle", "leads"),
    "link": (archive(*good(), change=kind(tarfile.SYMTYPE)), "unsafe_bundle", "link"),
    "hard link": (archive(*good(), change=kind(tarfile.LNKTYPE)), "unsafe_bundle", "link"),
    "device": (archive(*good(), change=kind(tarfile.CHRTYPE)), "unsafe_bundle", "link"),
    "folder": (archive(*good(), change=kind(tarfile.DIRTYPE)), "unsafe_bundle", "folder"),
    "twice": (archive(*good(), ("code/c.py", b"c = 2\n")), "unsafe_bundle", "twice"),
    "unlisted": (archive(*good(), ("code/more.py", b"")), "broken_bundle", "not those"),
    "missing": (archive(*good()[:-1]), "broken_bundle", "not those"),
    "changed": (archive(*good()[:-1], ("code/c.py", b"c = 2\n")), "broken_bundle", "sha256"),
    "candidate outside": (archive(*good(candidate="../c.py")), "broken_bundle", "not those"),
    "no json": (archive(("bundle.json", b"{"), ("verdict.json", b"{}")), "broken_bundle", "no JSON"),
    "too many": (archive(*((f"code/{number}.py", b"") for number in range(MAX_FILES + 3))), "bundle_too_large", "files"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_bundle_of_anyone_is_refused_in_one_line_and_nothing_is_written(name, tmp_path):
    data, code, words = HOSTILE[name]
    path = tmp_path / "b.tar.xz"
    path.write_bytes(data() if callable(data) else data)
    with pytest.raises(BadInput) as error:
        rejudge(path, tmp_path / "out")
    assert error.value.code == code and words in error.value.message and error.value.fix and error.value.exit_code == 2
    assert "\n" not in error.value.line() and sorted(tmp_path.iterdir()) == [path]


def test_a_huge_sparse_member_is_refused(tmp_path):
    """GNU's sparse files: 512 bytes that say they are a terabyte."""
    info = tarfile.TarInfo("code/c.py")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 0
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[483:495] = b"77777777777\0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    (tmp_path / "b.tar.xz").write_bytes(lzma.compress(bytes(block) + bytes(1024)))
    with pytest.raises(BadInput) as error:
        read_bundle(tmp_path / "b.tar.xz")
    assert error.value.code in ("bundle_too_large", "not_a_bundle")


def test_a_bundle_cannot_turn_off_a_check_or_choose_the_interpreter(tmp_path):
    every = JudgeOptions(sanitize=("memcheck",), device="cuda", python="/bin/evil", keep_dir=tmp_path, timeout_s=1.0, lock=False,
                         seed=3).model_dump(mode="json")
    asked = {name: not value if isinstance(value, bool) else value for name, value in every.items()}
    wanted = {"precision": "bf16", "rounds": 5, "max_timing_s": 2.0, "alpha": 0.01, "timing": True}
    (tmp_path / "b.tar.xz").write_bytes(archive(*good(options={**asked, **wanted})))
    found, usual = read_bundle(tmp_path / "b.tar.xz").options(device="cpu"), JudgeOptions()
    taken = {"precision", "rounds", "max_timing_s", "alpha", "timing", "seed", "device"}
    assert (found.precision, found.rounds, found.seed, found.device) == ("bf16", 5, 1, "cpu")
    assert {name: getattr(found, name) for name in JudgeOptions.model_fields if name not in taken} == {
        name: getattr(usual, name) for name in JudgeOptions.model_fields if name not in taken}


def test_a_python_without_lzma_is_named(tmp_path, monkeypatch):
    (tmp_path / "b.tar.xz").write_bytes(archive(*good()))
    monkeypatch.setitem(sys.modules, "lzma", None)
    with pytest.raises(MachineLacks, match="without lzma"):
        read_bundle(tmp_path / "b.tar.xz")


def test_options_that_cannot_be_are_named(tmp_path):
    (tmp_path / "b.tar.xz").write_bytes(archive(*good(options={"rounds": 1, "of_a_later_version": True})))
    with pytest.raises(BadInput, match="greater than or equal to 3"):
        read_bundle(tmp_path / "b.tar.xz").options()


@pytest.mark.parametrize(("changes", "same", "overlap", "words"), [
    ({}, True, True, "overlap (0.990 to 1.010 then, 1.000 to 1.020 now)"),
    ({"interval": (1.2, 1.3), "speedup": 1.25, "verdict": "FASTER"}, False, False, "DO NOT overlap"),
    ({"device_name": "NVIDIA A100", "verdict": "FASTER"}, True, None, "only correctness is compared, and it agrees; the timing is new"),
    ({"device_name": "NVIDIA A100", "verdict": "WRONG"}, False, None, "and it DIFFERS"),
    ({"verdict": "WRONG", "interval": None}, False, None, "bundled SAME, now WRONG"),
    ({"torch_version": "2.12.0"}, True, True, "torch was 2.11.0, is 2.12.0"),
])
def test_a_new_verdict_is_compared_with_the_bundled_one(changes, same, overlap, words, folder):
    bundled = Bundled(verdict="SAME", speedup=1.0, interval=(0.99, 1.01), device_name="NVIDIA H200", torch_version="2.11.0")
    new = verdict_of(folder / "w.py", folder / "c.py", **{"interval": (1.0, 1.02), **changes})
    found = against(bundled, new)
    assert (found.same_verdict, found.intervals_overlap) == (same, overlap) and words in found.words


def test_texts_without_paths_stay_as_they_are():
    scrub = Scrubber((), env={"SHORT": "cuda", "FOLDER": "/usr", "LONG": "kept-secret"})
    for text in ("speed-up 1.5x and/or 2x", "||a - b|| / ||b||", "N/A", "https://pytorch.org/docs", "cuda 3.12.3",
                  "file:///", "at [1, 2]: 3/4"):
        assert scrub.text(text) == text
    assert scrub.text("kept-secret /a/b c:\\x\\y.py ~/z/q.py file:///h/u/f.py") == "[removed] b y.py q.py f.py"
    assert scrub.document({"x_sha256": "kept-secret", "y": ["kept-secret", 1, None]}) == {
        "x_sha256": "kept-secret", "y": ["[removed]", 1, None]}


def test_a_path_that_is_no_bundle_file(tmp_path):
    for path, code in ((tmp_path / "gone.tar.xz", "no_such_file"), (tmp_path, "unreadable")):
        with pytest.raises(BadInput) as error:
            read_bundle(Path(path))
        assert error.value.code == code
