"""For every pytest run in this repository: how nbval starts the notebooks' kernels."""

import os
import subprocess

import nbval.kernel

_start_new_kernel = nbval.kernel.start_new_kernel


def start_new_kernel(**options):
    """Start a kernel that behaves as in JupyterLab.

    ipykernel leaves the standard file descriptors alone when it finds PYTEST_CURRENT_TEST, and
    then whatever a spawned worker prints is lost. nbval's own file for stderr stays open, so it
    is swapped for DEVNULL.
    """
    options["stderr"].close()
    options["stderr"] = subprocess.DEVNULL
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    environment["LABKIT_MEASURE_SECONDS"] = "0.5"  # nbval does not compare figures
    return _start_new_kernel(**options, env=environment)


nbval.kernel.start_new_kernel = start_new_kernel
