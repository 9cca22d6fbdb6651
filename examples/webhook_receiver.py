"""A webhook that memserver calls as a tool: `python webhook_receiver.py SECRET`.

It checks the signature before it does anything, as the Standard Webhooks specification says, with
nothing but Python itself.
"""

import base64
import hashlib
import hmac
import json
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

TOLERANCE_SECONDS = 300


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether the delivery is memserver's and fresh."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    sent_at = headers.get("webhook-timestamp", "0")
    content = f"{headers.get('webhook-id')}.{sent_at}.".encode() + body
    expected = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    signatures = headers.get("webhook-signature", "").split()
    fresh = abs(time.time() - int(sent_at)) <= TOLERANCE_SECONDS
    return fresh and any(hmac.compare_digest(f"v1,{expected}", each) for each in signatures)


class Receiver(BaseHTTPRequestHandler):
    """Answers a call of the tool."""

    secret = ""
    seen: ClassVar[set[str]] = set()
    """Deliveries that were answered: one that comes again is not done again."""

    def do_POST(self) -> None:
        """One delivery."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not is_genuine(self.secret, dict(self.headers.items()), body):
            self._answer(401, {"error": "not genuine"})
            return
        call = json.loads(body)
        again = self.headers["webhook-id"] in self.seen
        self.seen.add(self.headers["webhook-id"])
        self._answer(200, {"ordered": call["arguments"]["what"], "again": again})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, answer: dict[str, object]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    Receiver.secret = sys.argv[1]
    ThreadingHTTPServer(("127.0.0.1", 9000), Receiver).serve_forever()
