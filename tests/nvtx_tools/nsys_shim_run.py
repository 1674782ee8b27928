"""Run a script under an nsys that refuses nvtx 0.2.12 and newer: python nsys_shim_run.py SHIM.so script.py [args].

The shim is set here, before the first NVTX call, because nsys resets NVTX_INJECTION64_PATH at every exec.
"""

import os
import runpy
import sys

shim, sys.argv = os.path.abspath(sys.argv[1]), sys.argv[2:]
if "NVTX_INJECTION64_PATH" in os.environ:
    os.environ["NVTX_SHIM_REAL"] = os.environ["NVTX_INJECTION64_PATH"]
    os.environ["NVTX_INJECTION64_PATH"] = shim
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
