"""The candidate's confinement in parts: the filter's program on both processors, the allow-list, limits, tiers.

The whole, with candidates that attack, is in e2e/test_judge_hostile.py.
"""

import errno
import json
import os
import socket
import struct
from pathlib import Path

import pytest

from kernelwright.judge import JudgeOptions, confine
from kernelwright.probe import confine_landlock, confine_seccomp, confine_watch

OWN, JUDGE = 4242, 77
ALLOWED = "allowed"
NEW_USER, NEW_NET, THREAD = 0x10000000, 0x40000000, 0x3D0F00


def filtered(machine, number, *arguments, architecture=None):
    """What the kernel would do with this call: ALLOWED or the error's number."""
    audit = confine_seccomp.AUDIT_ARCH[architecture or machine]
    data = struct.pack("<IIQ6Q", number, audit, 0, *((argument & (2**64 - 1)) for argument in (*arguments, *[0] * (6 - len(arguments)))))
    code = confine_seccomp.program(machine, OWN, [JUDGE])
    value, at = 0, 0
    while True:
        step, if_true, if_false, constant = code[at]
        at += 1
        if step == confine_seccomp.LD:
            (value,) = struct.unpack_from("<I", data, constant)
        elif step == confine_seccomp.AND:
            value &= constant
        elif step == confine_seccomp.RET:
            return ALLOWED if constant == confine_seccomp.RET_ALLOW else constant & 0xFFFF
        else:
            holds = {confine_seccomp.JEQ: value == constant, confine_seccomp.JGE: value >= constant,
                     confine_seccomp.JSET: bool(value & constant)}[step]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", confine_seccomp.ARCHITECTURES)
def test_the_filter_refuses_what_it_names_and_lets_the_rest_through(machine, monkeypatch):
    for name in confine_seccomp.PINNING:
        monkeypatch.delenv(name, raising=False)
    which = confine_seccomp.ARCHITECTURES.index(machine)

    def call(numbers, *arguments):
        return filtered(machine, numbers[which], *arguments)

    for numbers in confine_seccomp.LEAVING:
        assert call(numbers) == 0, "it seems to leave the process group that the judge stops, and does not"
    for name, numbers in confine_seccomp.REFUSED.items():
        assert call(numbers) in (errno.EPERM, errno.EACCES), name
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_PACKET, socket.AF_NETLINK, 40):
        assert call(confine_seccomp.SOCKET, family, socket.SOCK_STREAM) == errno.EACCES
    assert call(confine_seccomp.SOCKET, socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) == ALLOWED
    assert call(confine_seccomp.SOCKET, socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) == errno.EACCES
    assert call(confine_seccomp.SOCKETPAIR, socket.AF_UNIX, socket.SOCK_DGRAM) == ALLOWED
    assert call(confine_seccomp.CLONE, THREAD) == ALLOWED
    assert call(confine_seccomp.CLONE, THREAD | NEW_USER | NEW_NET) == errno.EPERM
    assert call(confine_seccomp.CLONE3) == errno.ENOSYS  # so that libc falls back to clone
    for signalling in confine_seccomp.SIGNALLING:
        assert [call(signalling, whom) for whom in (JUDGE, -JUDGE, -1)] == [errno.EPERM] * 3
        assert [call(signalling, whom) for whom in (OWN, JUDGE + 1, 0)] == [ALLOWED] * 3
    for of_self in confine_seccomp.OF_SELF_ONLY:
        assert [call(of_self, whom) for whom in (0, OWN, JUDGE, 9)] == [ALLOWED, ALLOWED, errno.EPERM, errno.EPERM]
    for own_choice in (*confine_seccomp.SCHEDULING, *confine_seccomp.PRIORITY):
        assert [call(own_choice, whom, whom) for whom in (0, OWN, JUDGE)] == [0, 0, 0], "it seems to choose its core, and does not"
    for number in (0, 1, 2, 9, 63, 64, 222, 257, 451):  # read, write, mmap, openat and the like
        if number not in {numbers[which] for numbers in confine_seccomp.REFUSED.values()}:
            assert filtered(machine, number, 5, 6) == ALLOWED, number


def test_calls_of_another_architecture_do_not_exist():
    assert filtered("x86_64", 41, 2, architecture="aarch64") == errno.ENOSYS
    assert filtered("x86_64", confine_seccomp.X32_BIT | 41, 2) == errno.ENOSYS


def test_threads_may_be_bound_where_openmp_binds_them(monkeypatch):
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    affinity = confine_seccomp.SCHEDULING[0][0]
    assert filtered("x86_64", affinity, 9) == ALLOWED and filtered("x86_64", affinity, JUDGE) == errno.EPERM


def test_every_file_is_readable_but_those_in_hidden_folders(tmp_path):
    for name in ("hidden", "beside", "hidden-not"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "hidden")
    allowed = [Path(path) for path in confine_landlock.readable([str(tmp_path / "hidden")])]
    covers = [path for path in allowed if (tmp_path / "hidden").is_relative_to(path) or path.is_relative_to(tmp_path / "hidden")]
    assert covers == [] and tmp_path / "link" not in allowed
    for name in ("beside", "hidden-not", "file"):
        assert tmp_path / name in allowed
    assert Path("/usr") in allowed and Path("/proc") in allowed
    assert confine_landlock.readable([]) == ["/"]


@pytest.mark.parametrize(("groups", "expected"), [
    ({}, 8000 * 1024),
    ({"memory.max": "5000000", "memory.current": "1000000"}, 4_000_000),
    ({"memory.max": "max", "memory.current": "1000000"}, 8000 * 1024),
    ({"memory/memory.limit_in_bytes": "6000000", "memory/memory.usage_in_bytes": "7000000"}, 0),
])
def test_the_control_groups_limit_counts(tmp_path, groups, expected):
    (tmp_path / "meminfo").write_text("MemTotal: 16000 kB\nMemAvailable:    8000 kB\n")
    for name, text in groups.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert confine.available_bytes(tmp_path, tmp_path) == expected


def confinement(tmp_path, checks, **options):
    made = confine.Confinement(tmp_path, JudgeOptions(**options), "0" * 64, tmp_path / "w.py", tmp_path / "c.py", tmp_path, (1,))
    report = {"pid": 5, "checks": [{"name": name, "held": held, "detail": "why"} for name, held in checks.items()]}
    assert made.take(json.dumps(report).encode()) == ""
    return made


REPORTED = dict.fromkeys(("nothing left running", "limits", "no new privileges", "no network", "no writing outside",
                          "reference's files unreadable", "other processes' memory unreadable", "no signals to the judge"), True)


@pytest.mark.parametrize(("checks", "options", "hashed", "tier"), [
    (REPORTED, {}, True, "hostile"),
    ({**REPORTED, "no network": False}, {}, True, "known exploit"),
    ({**REPORTED, "Landlock": False}, {}, True, "hostile"),  # whatever did it: what was tried was refused
    ({"nothing left running": True}, {}, True, "known exploit"),
    ({**REPORTED, "nothing left running": False}, {}, True, "honest mistake"),
    (REPORTED, {}, False, "honest mistake"),
    (REPORTED, {"compile_cache": "user"}, True, "known exploit"),
])
def test_a_tier_needs_all_that_belongs_to_it(tmp_path, checks, options, hashed, tier):
    separation = confinement(tmp_path, checks, **options).separation(timed=True, hashed=hashed)
    assert separation.tier == tier
    assert {item.name for item in separation.missing} >= {name for name, held in checks.items() if not held}


def test_a_worker_that_said_nothing_holds_nothing(tmp_path):
    made = confine.Confinement(tmp_path, JudgeOptions(), "0" * 64, tmp_path / "w.py", tmp_path / "c.py", tmp_path, (1,))
    assert made.take(b'{"pid": "five"}') == "" and made.separation(timed=False, hashed=True).tier == "honest mistake"


def test_the_supervisors_reason_comes_after_the_report(tmp_path):
    made = confinement(tmp_path, REPORTED)
    assert made.take(b'{"ended": "started more than 8 processes"}') == "started more than 8 processes"
    assert made.take(b"nonsense") == "" and made.take(b"[]") == ""
    assert made.separation(timed=True, hashed=True).tier == "hostile"
    assert made.take(b'{"left": 2}') == "" and made.separation(timed=True, hashed=True).tier == "honest mistake"


def test_descendants_are_found_through_their_parents():
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            os.write(ready[1], b"x")
            os.close(go[1])
            os.read(go[0], 1)
            os._exit(0)
        os.waitpid(grandchild, 0)
        os._exit(0)
    os.read(ready[0], 1)
    below = list(confine_watch.descendants(os.getpid()))
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    for fd in (*ready, *go):
        os.close(fd)
    assert child in below and any(process != child and process in below for process in below)


def test_one_changed_character_of_the_judge_is_seen(tmp_path, monkeypatch):
    package = tmp_path / "kernelwright"
    for folder in confine.OWN_FOLDERS:
        (package / folder).mkdir(parents=True)
        (package / folder / "one.py").write_text("x = 1\n")
    monkeypatch.setattr(confine, "__file__", str(package / "judge" / "confine.py"))
    before = confine.own_files_sha256()
    assert confine.own_files_sha256() == before
    (package / "probe" / "one.py").write_text("x = 2\n")
    changed = confine.own_files_sha256()
    (package / "probe" / "two.py").write_text("")
    assert len({before, changed, confine.own_files_sha256()}) == 3
    assert sorted(confine.OWN_FOLDERS) == ["capture", "judge", "model", "probe"]


def test_compiled_code_of_the_oldest_candidates_goes(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    for index in range(confine.KEPT_CACHES + 3):
        folder = tmp_path / "judged" / f"{index:02}"
        folder.mkdir(parents=True)
        os.utime(folder, (1000 + index, 1000 + index))
    confine.prune_caches()
    assert min(path.name for path in (tmp_path / "judged").iterdir()) == "03"
