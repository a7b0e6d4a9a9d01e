"""What goes out in pieces arrives whole, whatever part of it the socket takes at a time."""

from __future__ import annotations

import select
import socket
import threading

import pytest
from late_data import Late

from leaderq.zookeeper.outgoing import Outgoing, write_pieces


@pytest.mark.parametrize(
    "sizes",
    [[1], [0, 5, 0], [700_000], [3, 100_000, 7, 100_000, 11], [2] * 1500, [0]],
    ids=lambda sizes: f"{len(sizes)} pieces",
)
def test_all_pieces_arrive_in_order(sizes: list[int]) -> None:
    pieces = [bytes([at % 251]) * size for at, size in enumerate(sizes)]
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # so that large ones go out in many parts
    received = bytearray()

    def receive() -> None:
        while chunk := theirs.recv(65536):
            received.extend(chunk)

    reader = threading.Thread(target=receive, daemon=True)
    reader.start()
    with theirs, ours:
        write_pieces(ours, pieces, lambda: _await_room(ours))
        ours.shutdown(socket.SHUT_WR)
        reader.join(30)

    assert bytes(received) == b"".join(pieces)


def test_a_peer_that_takes_nothing_more_is_told_by_who_waits_for_room() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    def await_room() -> None:
        if not select.select([], [ours], [], 0.05)[1]:
            raise TimeoutError

    with theirs, ours, pytest.raises(TimeoutError):
        write_pieces(ours, [b"x" * 50_000_000], await_room)


def test_what_is_late_or_small_is_gathered_and_what_is_large_stands_for_itself() -> None:
    large = b"l" * 20_000
    outgoing = Outgoing()
    for late in (Late(50_000), Late(7), Late(90_000)):  # the buffer is used again, and holds what is left of the last write
        pieces = outgoing.gathered([b"head", late, b"tail", large, b"end"])
        assert [bytes(piece) for piece in pieces] == [b"head" + b"z" * late.size + b"tail", large, b"end"]
        assert pieces[1] is large
        del pieces


def test_nothing_to_send_gives_no_pieces() -> None:
    assert Outgoing().gathered([]) == Outgoing().gathered([b""]) == []


def _await_room(sock: socket.socket) -> None:
    assert select.select([], [sock], [], 30)[1]
