"""What the heavy tests share: a proxy before the server that notes what it is asked."""

import http.server
import json
import os
import threading

import httpx
import pytest


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path.split("?")[0], json.loads(content)))
        headers = {name: self.headers[name] for name in ("Accept", "Authorization", "Content-Type")}
        url = os.environ["RELSERVE_URL"] + self.path
        reply = httpx.post(url, content=content, headers=headers, timeout=120)
        self.send_response(reply.status_code)
        self.send_header("Content-Type", reply.headers["Content-Type"])
        self.send_header("Content-Length", str(len(reply.content)))
        self.end_headers()
        self.wfile.write(reply.content)

    def log_message(self, *_):
        pass


class Proxy(http.server.ThreadingHTTPServer):
    """Its `url` stands for the server's; `asked` has the path and the body of each request."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url, self.asked = f"http://127.0.0.1:{self.server_port}", []

    def counts(self):
        """The path of each request, and how many rows or calls it had; a chat is one."""
        return [(path, len(body.get("rows") or body.get("calls") or [body])) for path, body in self.asked]


@pytest.fixture
def proxy():
    server = Proxy()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
