"""Importing the engine, the policies and the delay laws stays cheap."""

import subprocess
import sys


def test_scipy_is_not_loaded_by_importing():
    code = (
        "import sys, serverless_gc.engine, serverless_gc.policies, serverless_gc.stragglers;"
        "sys.exit(' '.join(m for m in ('scipy', 'boto3', 'aiobotocore', 'cloudpickle', 'pandas') if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
