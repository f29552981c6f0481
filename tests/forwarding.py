"""Passes connections on: from an address that others reach to a server that only listens on its own loopback.

python -m tests.forwarding HOST PORT TO_HOST TO_PORT [PEM]

With a file that holds a certificate and its key, those who connect need TLS, and the server behind does not.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from functools import partial

_AT_ONCE = 1 << 16


async def forward(host: str, port: str, to_host: str, to_port: str, pem: str | None = None) -> None:
    """Pass connections on until the process ends."""
    context = None
    if pem:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        context.set_alpn_protocols(["h2"])
    server = await asyncio.start_server(partial(_both_ways, to_host, int(to_port)), host, int(port), ssl=context)
    await server.serve_forever()


async def _both_ways(to_host: str, to_port: int, reader: StreamReader, writer: StreamWriter) -> None:
    # Whoever comes before the server listens, or goes in the middle, sees his connection end.
    with suppress(OSError):
        there = await asyncio.open_connection(to_host, to_port)
        await asyncio.gather(_one_way(reader, there[1]), _one_way(there[0], writer))
    writer.close()


async def _one_way(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        while data := await reader.read(_AT_ONCE):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(forward(*sys.argv[1:]))
