from __future__ import annotations

import socket

from elasticctr.control.web import WebServer, make_app


def test_no_part_of_an_answer_waits_for_the_part_before_it() -> None:
    server = WebServer(make_app([], None), "127.0.0.1", 0)
    listener = server._socket
    with listener, socket.create_connection(("127.0.0.1", server.port), timeout=10):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
