"""S3 on this machine for tests: moto's server in a process of its own, on 127.0.0.1, on a free port.

Nothing is patched: clients find it by its endpoint, so aiobotocore works and other processes see the same objects.

What to know of moto 5.2: it checks neither signatures nor permissions, closes the connection after each answer,
never answers 503, and answers 500 when one key is overwritten by two writers at the same time (writing once,
with ``If-None-Match``, is right).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

__all__ = ["MOTO_ENVIRONMENT", "moto_server"]

MOTO_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",  # moto takes any
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Environment in which the AWS clients need no configuration."""


@contextlib.contextmanager
def moto_server(*, stop_timeout: float = 5.0) -> Iterator[str]:
    """Run the server while the block runs and give its endpoint, ``http://127.0.0.1:port``.

    The server ends with the block, and also when this process dies. Each call is a server of its own, so test
    processes may run side by side.

    Parameters
    ----------
    stop_timeout
        Seconds given to the server to end before it is killed.

    Raises
    ------
    RuntimeError
        If the server does not start; the message holds what it printed.
    """
    process = subprocess.Popen(  # noqa: S603 - our own module, our own interpreter
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONWARNINGS": "ignore"},
    )
    with process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            _, errors = process.communicate()
            raise RuntimeError(f"the moto server did not start; is moto[s3,server] installed? It said:\n{errors}")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            # The server ends when its input does; Popen's own exit waits for it.
            try:
                process.communicate(timeout=stop_timeout)
            except subprocess.TimeoutExpired:
                process.kill()


def _serve() -> None:
    """Serve until the standard input ends, telling the port in one line."""
    import logging
    import threading

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.disable(logging.CRITICAL)
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    _serve()
