"""Kernel projects: kernelwright.yaml, the kernels and versions it names, and which one a person means.

`find(folder)` gives the Project that holds a folder, or None.
"""

from .edit import accept
from .find import find, find_file
from .model import Baseline, Budget, Kernel, Project, Version
from .reading import PROJECT_FILE, read_project
from .resolve import Meant, kernel_and_version, kernels_of_file

__all__ = ["PROJECT_FILE", "Baseline", "Budget", "Kernel", "Meant", "Project", "Version", "accept", "find", "find_file",
           "kernel_and_version", "kernels_of_file", "read_project"]
