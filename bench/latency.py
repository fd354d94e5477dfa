"""A TCP proxy that hands on what clients say some time later, as a longer way to the server would."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

CHUNK = 1 << 16


@contextmanager
def later(port: int, seconds: float) -> Iterator[int]:
    """A proxy before a port of this machine; gives its own port. Answers come back at once."""
    ready: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(port, seconds, ready)), daemon=True)
    thread.start()
    own_port, loop, stop = ready.result()
    try:
        yield own_port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


async def _serve(
    port: int, seconds: float, ready: "Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]]"
) -> None:
    async def meet(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            server, to_server = await asyncio.open_connection("127.0.0.1", port)
            try:
                await asyncio.gather(_hand_on(client, to_server, seconds), _hand_on(server, to_client, 0))
            finally:
                to_server.close()
                to_client.close()

    stop = asyncio.Event()
    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        ready.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), stop))
        await stop.wait()


async def _hand_on(given: asyncio.StreamReader, to: asyncio.StreamWriter, seconds: float) -> None:
    """Each part as much later as all others, in their order, so that the delay holds nothing up."""
    now = asyncio.get_running_loop().time
    parts: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, part = await parts.get()
            await asyncio.sleep(due - now())
            if not part:
                to.write_eof()
                return
            to.write(part)
            await to.drain()

    delivering = asyncio.create_task(deliver())
    while part := await given.read(CHUNK):
        parts.put_nowait((now() + seconds, part))
    parts.put_nowait((now() + seconds, b""))
    await delivering
