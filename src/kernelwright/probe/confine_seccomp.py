"""A system-call filter for the candidate's process: no network, no tracing, no signals to the judge, no ways around (seccomp(2)).

Refused calls give an error (EACCES or EPERM), they end nothing. The filter is inherited by every process started from here on.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence

SECCOMP_SET_MODE_FILTER = 1
SPEC_ALLOW = 1 << 2
"""Without this flag older kernels switch speculation off for filtered threads, and the candidate alone would run slower."""
RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000
LD, JEQ, JGE, JSET, AND, RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
NR, ARCH, ARGS = 0, 4, 16
"""Offsets in struct seccomp_data; arguments are 8 bytes each, the low half first."""
X32_BIT = 0x40000000
AF_UNIX, SOCK_DGRAM, SOCK_TYPE_MASK = 1, 2, 0xF
NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME (linux/sched.h)."""
PINNING = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES")
"""With one of these set OpenMP binds each thread it starts by the thread's number, which a filter cannot know beforehand."""
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ARCHITECTURES = ("x86_64", "aarch64")
Instruction = tuple[int, int, int, int]

REFUSED: dict[str, tuple[int, int]] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "connect": (42, 203), "delete_module": (176, 106),
    "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "init_module": (175, 105), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219), "lookup_dcookie": (212, 18),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "pidfd_getfd": (438, 438), "pivot_root": (155, 41), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142), "request_key": (249, 218), "setdomainname": (171, 162),
    "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170), "swapoff": (168, 225), "swapon": (167, 224),
    "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "vhangup": (153, 58),
}
"""Name -> number on x86_64 and on aarch64 (asm/unistd_64.h, asm-generic/unistd.h). io_uring because it makes sockets past any filter."""
SOCKET, SOCKETPAIR, CLONE, CLONE3 = (41, 198), (53, 199), (56, 220), (435, 435)
SIGNALLING = ((62, 129), (200, 130), (234, 131), (129, 138), (297, 240), (434, 434))
"""kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_open: the first argument says whom."""
OF_SELF_ONLY = ((302, 261), (279, 239), (256, 238))
"""prlimit64, move_pages, migrate_pages: the first argument says whose."""
SCHEDULING = ((203, 122), (314, 274), (142, 118), (144, 119))
"""sched_setaffinity, sched_setattr, sched_setparam, sched_setscheduler. They say that they did it, and did nothing: a side that chose its
own core or priority would leave the other one the busy cores. Where OpenMP is told to bind its threads (PINNING) the reference's are bound
too, so there they work; the first argument says whose."""
PRIORITY = ((141, 140), (251, 30))
"""setpriority, ioprio_set: as SCHEDULING."""
LEAVING = ((112, 157), (109, 154))
"""setsid, setpgid: they say that they did it, and did nothing. The judge stops the process group while the other side is timed, and who
left it would run on; refused, they would break ninja, which puts each compiler into a group of its own."""
SECCOMP = (317, 277)


def install(own: int, protected: Sequence[int]) -> None:
    """Filter this process from now on; no_new_privs must be set. own: this process's id; protected: ids that get no signal.

    Raises OSError with the reason where the machine cannot.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, f"no system-call filter for {machine}")
    code = b"".join(struct.pack("<HBBI", *instruction) for instruction in program(machine, own, protected))
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for flags in (SPEC_ALLOW, 0):  # the flag is younger (4.17) than the filter
        if libc.syscall(SECCOMP[ARCHITECTURES.index(machine)], SECCOMP_SET_MODE_FILTER, flags, head) == 0:
            return
    number = ctypes.get_errno()
    raise OSError(number, f"seccomp: {os.strerror(number)}")


def program(machine: str, own: int, protected: Sequence[int]) -> list[Instruction]:
    """The filter's instructions (classic BPF: code, jump if true, jump if false, constant)."""
    which = ARCHITECTURES.index(machine)
    out = [_load(ARCH), (JEQ, 1, 0, AUDIT_ARCH[machine]), _error(errno.ENOSYS), _load(NR)]
    if machine == "x86_64":
        out += [(JGE, 0, 1, X32_BIT), _error(errno.ENOSYS)]
    for name in sorted(REFUSED):
        out += [(JEQ, 0, 1, REFUSED[name][which]), _error(errno.EACCES if name == "connect" else errno.EPERM)]
    out += [(JEQ, 0, 1, CLONE3[which]), _error(errno.ENOSYS)]  # its flags lie in memory; libc falls back to clone
    out += _block(CLONE[which], [_load(ARGS), (JSET, 0, 1, NAMESPACE_FLAGS), _error(errno.EPERM)])
    out += _block(SOCKET[which], [_load(ARGS), (JEQ, 1, 0, AF_UNIX), _error(errno.EACCES), _load(ARGS + 8),
                                  (AND, 0, 0, SOCK_TYPE_MASK), (JEQ, 0, 1, SOCK_DGRAM), _error(errno.EACCES)])
    out += _block(SOCKETPAIR[which], [_load(ARGS), (JEQ, 1, 0, AF_UNIX), _error(errno.EACCES)])
    whom = [*protected, *(-number for number in protected), -1]
    for call in SIGNALLING:
        out += _block(call[which], [_load(ARGS), *(step for number in whom for step in _equals(number))])
    for call in OF_SELF_ONLY:
        out += _block(call[which], _self_only(ARGS, own))
    pinned = any(name in os.environ for name in PINNING)
    for call in SCHEDULING if pinned else ():
        out += _block(call[which], [_load(ARGS), *(step for number in whom for step in _equals(number))])
    for call in (*LEAVING, *PRIORITY, *(() if pinned else SCHEDULING)):
        out += [(JEQ, 0, 1, call[which]), (RET, 0, 0, RET_ERRNO)]
    return [*out, (RET, 0, 0, RET_ALLOW)]


def _load(offset: int) -> Instruction:
    return (LD, 0, 0, offset)


def _error(number: int) -> Instruction:
    return (RET, 0, 0, RET_ERRNO | number)


def _equals(number: int) -> list[Instruction]:
    return [(JEQ, 0, 1, number & 0xFFFFFFFF), _error(errno.EPERM)]


def _self_only(offset: int, own: int) -> list[Instruction]:
    return [_load(offset), (JEQ, 2, 0, 0), (JEQ, 1, 0, own), _error(errno.EPERM)]


def _block(call: int, steps: list[Instruction]) -> list[Instruction]:
    """What follows for one call; it ends in a return, so the call's number need not be loaded again for the next."""
    return [(JEQ, 0, len(steps) + 1, call), *steps, (RET, 0, 0, RET_ALLOW)]
