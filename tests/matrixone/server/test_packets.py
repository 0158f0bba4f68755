import socket
import threading
from collections.abc import Iterator

import pytest

from ccpr.matrixone.server.answers import Streamed
from ccpr.matrixone.server.packets import MAX_FRAME, Channel, ProtocolError


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("frames", [1, 2, 3])
def test_frames_are_split_and_joined_at_their_exact_limit(frames: int, extra: int) -> None:
    near, far = socket.socketpair()
    payload = bytes(range(251)) * ((frames * MAX_FRAME + extra) // 251 + 1)
    payload = payload[: frames * MAX_FRAME + extra]
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(Channel(far).read(1 << 30)))
    reader.start()
    channel = Channel(near)
    channel.write(payload[:1000], memoryview(payload)[1000:])
    channel.flush()
    reader.join(60)
    assert received == [payload]
    assert channel.sequence == frames + (extra >= 0)
    near.close()
    far.close()


def test_a_packet_out_of_order_is_an_error() -> None:
    near, far = socket.socketpair()
    near.sendall(b"\x01\0\0\x03x")
    with pytest.raises(ProtocolError, match="packet number 3"):
        Channel(far).read(100)
    near.close()
    far.close()


@pytest.mark.parametrize("size", [0, 1000, MAX_FRAME - 1, MAX_FRAME, 2 * MAX_FRAME + 5])
def test_a_streamed_cell_is_read_as_it_is_sent(size: int) -> None:
    near, far = socket.socketpair()
    whole = bytes(range(251)) * (size // 251 + 1)
    step, taken = 1 << 20, list[int]()

    def pieces() -> Iterator[memoryview]:
        for place in range(0, size, step):
            taken.append(place)
            yield memoryview(whole)[place : min(place + step, size)]

    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(Channel(far).read(1 << 30)))
    reader.start()
    channel = Channel(near)
    channel.write(b"before", Streamed(size, pieces), b"behind")
    channel.flush()
    reader.join(60)
    assert received == [b"before" + whole[:size] + b"behind"]
    assert taken == list(range(0, size, step))
    near.close()
    far.close()
