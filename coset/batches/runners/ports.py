"""Ports on loopback for servers that this process starts."""

from __future__ import annotations

import ipaddress
import socket


def free_ports(count: int) -> tuple[int, ...]:
    """Different free ports. Another process may take one before it is used."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(server.getsockname()[1] for server in held)
    for server in held:
        server.close()
    return ports


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
