#!/usr/bin/env python3
"""bad_server.py FOLDER LOG: an HTTP server on a free port of this machine that behaves as the path's first part says:
/plain/a is file a of FOLDER as it should be served. Prints the port, then serves until it is killed. Each request is a
line of LOG: path and Range.
"""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[1])
LOG = Path(sys.argv[2])
counts = {}
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, body, **headers):
        """`length` overrules the true one."""
        length = headers.pop("length", len(body))
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def serve(self, body, limit=None, ranges=True):
        """As it should be; of the body only the first `limit` bytes are sent, whatever length was announced."""
        begin = self.begin() if ranges else 0
        if begin and begin >= len(body):
            return self.answer(416, b"no such range")
        rest = body[begin:]
        status = 206 if begin else 200
        extra = {"Content_Range": f"bytes {begin}-{len(body) - 1}/{len(body)}"} if begin else {}
        self.answer(status, rest[:limit], length=len(rest), **extra)

    def begin(self):
        asked = self.headers.get("Range", "")
        return int(asked[len("bytes="):].split("-")[0]) if asked.startswith("bytes=") else 0

    def do_GET(self):
        with lock:
            with LOG.open("a") as log:
                log.write(f"{self.path} {self.headers.get('Range', '')}".strip() + "\n")
            count = counts[self.path] = counts.get(self.path, 0) + 1
        behaviour, name = self.path[1:].split("/", 1)
        path = FOLDER / name
        if not path.is_file():
            return self.answer(404, b"<html>not here</html>")
        body = path.read_bytes()
        first = count == 1
        if behaviour == "plain":
            self.serve(body)
        elif behaviour == "truncate":  # 1000 bytes a connection
            self.serve(body, limit=1000)
        elif behaviour == "truncate-once":
            self.serve(body, limit=len(body) // 2 if first else None)
        elif behaviour == "truncate-always":  # and ranges are not heard
            self.serve(body, limit=len(body) // 2, ranges=False)
        elif behaviour == "ignore-range":
            self.serve(body, limit=len(body) // 2 if first else None, ranges=False)
        elif behaviour == "wrong-range":  # the beginning again, as though it were the rest
            if self.begin():
                self.answer(206, body[: len(body) - self.begin()])
            else:
                self.serve(body, limit=len(body) // 2 if first else None)
        elif behaviour in ("stall", "stall-once"):
            if behaviour == "stall-once" and not first:
                return self.serve(body)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2 if behaviour == "stall-once" else 0])
            self.wfile.flush()
            time.sleep(60)
        elif behaviour == "trickle-once":  # 200 bytes a second, which is some, and never all of it within a test
            if not first:
                return self.serve(body)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for at in range(0, len(body), 10):
                self.wfile.write(body[at : at + 10])
                self.wfile.flush()
                time.sleep(0.05)
        elif behaviour == "too-long":  # says
            self.answer(200, body, length=len(body) + 100)
        elif behaviour == "too-short":  # says
            self.answer(200, body, length=len(body) - 10)
        elif behaviour == "wrong":
            self.answer(200, bytes([body[0] ^ 1]) + body[1:])
        elif behaviour == "endless":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            while True:
                self.wfile.write(body)
        elif behaviour == "busy":
            self.answer(503, b"<html>later</html>") if count <= 2 else self.serve(body)
        elif behaviour == "always-busy":
            self.answer(503, b"<html>later</html>")
        elif behaviour == "redirect":
            self.answer(302, b"<html>elsewhere</html>", Location=f"/plain/{name}")
        elif behaviour == "loop":
            self.answer(302, b"<html>here</html>", Location=self.path)
        elif behaviour == "elsewhere":
            self.answer(302, b"<html>there</html>", Location="file:///etc/passwd")
        else:
            self.answer(404, b"<html>no such behaviour</html>")


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *arguments: None  # who hangs up on us is right to
    print(server.server_address[1], flush=True)
    server.serve_forever()
