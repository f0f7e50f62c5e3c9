"""What the hot path does by itself: sockets, parameters. Nothing is sent."""

import socket

import pytest

from serverless_gc.aws.access import keepalive_socket
from serverless_gc.errors import InputError
from serverless_gc.invoke.aws import LambdaInvoker


def test_idle_connections_are_probed_before_networks_drop_them():
    with keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ())) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 300


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"function": ""}, "function"),
        ({"concurrency": 0}, "concurrency"),
        ({"connect_timeout": 0.0}, "connect_timeout"),
        ({"transport": "carrier pigeon"}, "transport"),
    ],
)
def test_parameters_are_checked(options, named):
    with pytest.raises(InputError, match=named):
        LambdaInvoker(**{"function": "worker", **options})
