"""Command lines that mend a lack, as this machine needs them: its package manager, its container, its user."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .system_view import SystemView

Manager = Literal["conda", "apt", "dnf", ""]
OPEN_COUNTERS = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
"""Module option of the driver (developer.nvidia.com/ERR_NVGPUCTRPERM)."""
TORCH_INDEX = "https://download.pytorch.org/whl"


@dataclass(frozen=True)
class Packages:
    """The names of one thing in each manager; "" where that manager does not have it."""

    apt: str
    dnf: str
    conda: str = ""


COMPILER = Packages("g++", "gcc-c++", "-c conda-forge gxx")


def sudo(view: SystemView) -> str:
    """"sudo " unless root asks; minimal images have no sudo."""
    return "" if view.uid == 0 else "sudo "


def manager(view: SystemView) -> Manager:
    """An active conda environment comes first: it needs no root, and what it has shadows the system's."""
    if view.env.get("CONDA_PREFIX") and (view.which("conda") or view.which("mamba")):
        return "conda"
    if view.which("apt-get"):
        return "apt"
    return "dnf" if view.which("dnf") else ""


def install(view: SystemView, packages: Packages) -> str:
    """The command that installs them; apt's where no manager was found."""
    chosen, root = manager(view), sudo(view)
    if chosen == "conda" and packages.conda:
        return f"{'conda' if view.which('conda') else 'mamba'} install -y {packages.conda}"
    if view.which("apt-get") is None and view.which("dnf"):
        return f"{root}dnf install -y {packages.dnf}"
    return f"{root}apt-get update && {root}apt-get install -y {packages.apt}"


def pip_install(view: SystemView, python: Path, what: str) -> str:
    """The command that installs into the interpreter's environment; uv's where the environment has no pip of its own, a new
    environment's over it where the system forbids."""
    prefix = python.parent.parent
    bare = (prefix / "pyvenv.cfg").is_file() and not any(prefix.glob("lib/python*/site-packages/pip"))
    quoted = shlex.quote(str(python))
    if any(prefix.glob("lib/python3*/EXTERNALLY-MANAGED")):  # pip refuses to install there (PEP 668)
        return f"{quoted} -m venv --system-site-packages .venv && .venv/bin/python -m pip install {what}"
    if not bare:
        return f"{quoted} -m pip install {what}"
    if view.which("uv"):
        return f"uv pip install --python {quoted} {what}"
    return f"{quoted} -m ensurepip && {quoted} -m pip install {what}"


def container(view: SystemView) -> str:
    """"docker", "podman", "kubernetes", "container" (some other), "" outside."""
    if view.env.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if view.path("/.dockerenv").exists():
        return "docker"
    if view.path("/run/.containerenv").exists():
        return "podman"
    groups = view.read("/proc/1/cgroup") or ""
    return next((name for word, name in (("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("lxc", "container"),
                                         ("containerd", "container")) if word in groups), "")


def open_counters(view: SystemView) -> tuple[str, str]:
    """(command, advice) for counters that the driver keeps for administrators."""
    refresh = "dracut --force" if view.which("apt-get") is None and view.which("dnf") else "update-initramfs -u"
    host = f"echo '{OPEN_COUNTERS}' | sudo tee /etc/modprobe.d/nvidia-profiling.conf && sudo {refresh}"
    # Root without the capability is root of a container, whatever else says so.
    where = container(view) or ("container" if view.uid == 0 else "")
    advice = f"start this container anew with that option and as root; or open the counters to all on the host, and reboot it: {host}"
    if where == "kubernetes":
        patch = ('[{"op":"add","path":"/spec/template/spec/containers/0/securityContext",'
                 '"value":{"runAsUser":0,"capabilities":{"add":["SYS_ADMIN"]}}}]')
        return f"kubectl patch deployment NAME --type=json -p '{patch}'", advice
    if where == "podman":
        return "sudo podman run --device nvidia.com/gpu=all --cap-add=SYS_ADMIN IMAGE", advice
    if where:
        return "docker run --gpus all --cap-add=SYS_ADMIN IMAGE", advice
    return host.replace("sudo ", sudo(view)), "it takes effect after a reboot; until then pass --ncu-sudo, where you may use sudo"
