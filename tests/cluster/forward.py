"""`forward.py HOST:PORT HOST:PORT`: forwards connections to the first address to the second one."""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def forward(listen: str, target: str) -> None:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*target.rsplit(":", 1))
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, back), pump(there, writer))
        back.close()
        writer.close()

    host, port = listen.rsplit(":", 1)
    async with await asyncio.start_server(serve, host, int(port)) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(forward(sys.argv[1], sys.argv[2]))
