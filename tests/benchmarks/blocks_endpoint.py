"""A raw S3 for measuring clients: GET of ``.../<size>`` gives that many bytes, PUT takes any number and forgets them.

``python blocks_endpoint.py`` writes its port and serves until standard input ends.
"""

import asyncio
import re
import sys

LARGEST = 2**28
CONTENT = memoryview(bytes(2**20) * (LARGEST // 2**20))
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
STORED = b'HTTP/1.1 200 OK\r\nETag: "t"\r\nContent-Length: 0\r\n\r\n'
UPLOAD = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
UPLOADED = b"<CompleteMultipartUploadResult><ETag>t</ETag></CompleteMultipartUploadResult>"


class Protocol(asyncio.BufferedProtocol):
    """Receives into one buffer; bodies of PUT are counted, not kept."""

    def __init__(self):
        self.buffer = memoryview(bytearray(2**20))
        self.head = b""
        self.left = 0

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, _hint):
        return self.buffer

    def buffer_updated(self, n):
        data = self.buffer[:n]
        if self.left:
            taken = min(self.left, n)
            self.left -= taken
            data = data[taken:]
            if not self.left:
                self.transport.write(self.answer)
        self.head += data
        while (end := self.head.find(b"\r\n\r\n")) >= 0:
            head, self.head = self.head[:end], self.head[end + 4 :]
            self.serve(head)

    def serve(self, head):
        method, path, _ = head.split(b" ", 2)
        size = int(found.group(1)) if (found := re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)) else 0
        if method == b"GET":
            self.give(
                int(path.partition(b"?")[0].rpartition(b"/")[2]), re.search(rb"(?i)\r\nrange: *bytes=(\d+)-(\d+)", head)
            )
            return
        self.answer = STORED
        if method == b"POST":
            body = UPLOAD if b"uploads" in path else UPLOADED
            self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        if re.search(rb"(?i)\r\nexpect: *100-continue", head):
            self.transport.write(CONTINUE)
        here = min(size, len(self.head))
        self.head = self.head[here:]
        self.left = size - here
        if not self.left:
            self.transport.write(self.answer)

    def give(self, size, extent):
        status, start, stop = b"200 OK", 0, size
        if extent:
            status, start, stop = b"206 Partial Content", int(extent.group(1)), int(extent.group(2)) + 1
        head = b'HTTP/1.1 %s\r\nETag: "t"\r\nContent-Length: %d\r\n\r\n' % (status, stop - start)
        self.transport.write(head)
        self.transport.write(CONTENT[start:stop])


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Protocol, "127.0.0.1", 0, backlog=256)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
