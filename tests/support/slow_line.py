"""A TCP line that is slow by design, as a process of its own: each connection has a latency and a rate.

`python tests/support/slow_line.py PORT MILLISECONDS MB_S` listens on a port of the loopback address, which it prints,
and forwards to the given one there.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_HOST, _CHUNK, _UNDER_WAY = "127.0.0.1", 64 << 10, 16


@contextmanager
def slow_line(port: int, milliseconds: float, mb_s: float) -> Iterator[int]:
    """The port by which what listens on `port` is reached slowly; a round trip takes so many milliseconds longer."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(port), str(milliseconds), str(mb_s)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


async def _serve(port: int, seconds: float, rate: float) -> None:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source, sink = await asyncio.open_connection(_HOST, port)
        answers = asyncio.create_task(_pump(source, writer, seconds, rate))
        await _pump(reader, sink, 0.0, rate)
        await answers

    server = await asyncio.start_server(forward, _HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float, rate: float) -> None:
    """Each chunk leaves `seconds` after it has arrived, and no sooner than the ones before it have left at the rate."""
    clock = asyncio.get_running_loop().time
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)

    async def arrive() -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                await under_way.put((clock() + seconds, chunk))
        await under_way.put((0.0, b""))

    arriving, free = asyncio.create_task(arrive()), 0.0
    with suppress(OSError):
        while (entry := await under_way.get())[1]:
            free = max(entry[0], free) + len(entry[1]) / rate
            await asyncio.sleep(max(0.0, free - clock()))
            writer.write(entry[1])
            await writer.drain()
    arriving.cancel()
    writer.close()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 1000, float(sys.argv[3]) * 1e6))
