"""S3 servers other than moto, started on 127.0.0.1 from what the machine has installed.

radosgw (Debian: radosgw ceph-mon ceph-osd ceph-common) checks signatures and their expiry. ministack (PyPI) is quick.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

RADOS_USER = {"AWS_ACCESS_KEY_ID": "AKIDRADOS", "AWS_SECRET_ACCESS_KEY": "a-secret/of+radosgw"}
RADOS_PROGRAMS = ("radosgw", "radosgw-admin", "ceph-mon", "ceph-osd", "ceph", "monmaptool")

# Without `tcp_nodelay` small reads take 40 ms each; radosgw asks the monitor for a secure connection unless told that
# there is none.
RADOS_CONF = """
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon}/0]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
mon_allow_pool_size_one = true
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_objectstore = memstore
memstore_device_bytes = 2147483648
mon_data = {folder}/mon
osd_data = {folder}/osd
rgw_data = {folder}/rgw
run_dir = {folder}/run
crash_dir = {folder}/run
keyring = {folder}/keyring
admin_socket =
pid_file =
log_file =
log_to_stderr = true
err_to_stderr = true
mon_cluster_log_to_file = false
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw_thread_pool_size = 64
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def answers(url, seconds):
    """Wait until something speaks HTTP at a URL."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            opener.open(url, timeout=2.0).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            time.sleep(0.1)
            continue
        return
    raise RuntimeError(f"nothing answers at {url} after {seconds} s")


class Started(contextlib.ExitStack):
    """Processes that end with the block, last one first, with what they print in a folder."""

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)

    def run(self, *command, **environment):
        log = self.enter_context((self.folder / f"{Path(command[0]).name}.log").open("wb"))
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
        self.callback(self.end, process)

    @staticmethod
    def end(process):
        process.terminate()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def missing_for_radosgw():
    """Say what is not installed."""
    return ", ".join(name for name in RADOS_PROGRAMS if shutil.which(name) is None)


@contextlib.contextmanager
def radosgw(folder):
    """Run Ceph's S3 gateway on a cluster of one, in memory; about 15 s to start."""
    for name in ("mon", "osd", "rgw", "run"):
        (folder / name).mkdir()
    (folder / "keyring").touch()
    conf, fsid, mon, port = folder / "ceph.conf", str(uuid.uuid4()), free_port(), free_port()
    conf.write_text(RADOS_CONF.format(fsid=fsid, mon=mon, port=port, folder=folder))

    def finish(*command):
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    at, osd = ("-c", str(conf)), str(uuid.uuid4())
    monmap = str(folder / "monmap")
    finish("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{mon}]", monmap)
    finish("ceph-mon", *at, "--mkfs", "-i", "a", "--monmap", monmap)
    with Started(folder) as started:
        started.run("ceph-mon", *at, "-i", "a", "-f")
        finish("ceph", *at, "--connect-timeout", "60", "osd", "new", osd)
        finish("ceph-osd", *at, "-i", "0", "--mkfs", "--osd-uuid", osd)
        started.run("ceph-osd", *at, "-i", "0", "-f")
        keys = ("--access-key", RADOS_USER["AWS_ACCESS_KEY_ID"], "--secret-key", RADOS_USER["AWS_SECRET_ACCESS_KEY"])
        finish("radosgw-admin", *at, "-n", "client.rgw", "user", "create", "--uid=u", "--display-name=u", *keys)
        started.run("radosgw", *at, "-n", "client.rgw", "-f")
        answers(f"http://127.0.0.1:{port}", 60.0)
        yield f"http://127.0.0.1:{port}"


def ministack_program():
    """Return the program, of this environment or of the path, or None."""
    beside = Path(sys.executable).with_name("ministack")
    return str(beside) if beside.exists() else shutil.which("ministack")


@contextlib.contextmanager
def ministack(folder):
    """Run ministack; it listens on all interfaces unless told otherwise."""
    port = free_port()
    with Started(folder) as started:
        place = {"GATEWAY_PORT": str(port), "PORT": str(port), "BIND_HOST": "127.0.0.1"}
        started.run(ministack_program(), **place)
        answers(f"http://127.0.0.1:{port}", 30.0)
        yield f"http://127.0.0.1:{port}"
