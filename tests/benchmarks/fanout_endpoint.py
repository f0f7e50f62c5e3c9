"""A thin fake of Lambda's data plane, for measuring clients: one asyncio protocol, canned replies.

``python fanout_endpoint.py REPLY_BYTES SERVICE_SECONDS`` writes its port and serves until standard input ends.
"""

import asyncio
import sys


def response(reply_bytes: int) -> bytes:
    body = b'{"sgc":"' + b"A" * (4 * (reply_bytes // 3)) + b'"}'
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Amz-Executed-Version: $LATEST\r\n"
        "x-amzn-RequestId: 8f5a3c1e-0000-4000-8000-000000000000\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Protocol(asyncio.Protocol):
    def __init__(self, answer: bytes, service: float) -> None:
        self.answer, self.service, self.data = answer, service, b""
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length:") + len(b"content-length:")
            length = int(head[at : head.find(b"\r\n", at) if head.find(b"\r\n", at) >= 0 else None])
            if len(self.data) < end + 4 + length:
                return
            self.data = self.data[end + 4 + length :]
            if self.service:
                self.loop.call_later(self.service, self.transport.write, self.answer)
            else:
                self.transport.write(self.answer)


async def main() -> None:
    loop = asyncio.get_running_loop()
    answer, service = response(int(sys.argv[1])), float(sys.argv[2])
    server = await loop.create_server(lambda: Protocol(answer, service), "127.0.0.1", 0, backlog=2048)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
