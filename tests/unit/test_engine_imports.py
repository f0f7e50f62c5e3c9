"""Importing the engine, the policies and the delay laws stays cheap."""

import subprocess
import sys


def test_scipy_is_not_loaded_by_importing():
    heavy = ("scipy", "boto3", "aiobotocore", "cloudpickle", "pandas")
    code = (
        "import sys, serverless_gc.engine, serverless_gc.policies, serverless_gc.stragglers;"
        f"sys.exit(' '.join(m for m in {heavy} if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
