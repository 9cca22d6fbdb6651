"""Which addresses may be connected to when a user names the URL.

A name is checked by the addresses that it resolves to, at the moment of the connection and by the address
that is connected to: so neither a redirect nor a second answer of the DNS gets around it.
"""

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

from memserver.errors import InvalidInput
from memserver.text import snippet

Networks = Sequence[IPv4Network | IPv6Network]
Address = IPv4Address | IPv6Address
AddrInfo = tuple[int, int, int, str, Any]

_NAME = re.compile(r"(?=.{1,253}$)[\w-]{1,63}(\.[\w-]{1,63})*", re.ASCII)
"""Of a host, as DNS takes it; containers' names have underscores."""
_NAT64 = ip_network("64:ff9b::/96")
_SETTING = "MEMSERVER_TOOL_NETWORKS names networks that are allowed all the same."


class AddressRefused(OSError):
    """The address is private, of this machine, or otherwise none of the public internet."""

    def __init__(self) -> None:
        super().__init__("the address is not one of the public internet, and not allowed here")


def is_allowed(address: str, allowed: Networks) -> bool:
    """Whether a request may go to this address: a public one, or one of the allowed networks."""
    found = _inner(ip_address(address.partition("%")[0]))
    if any(found.version == network.version and found in network for network in allowed):
        return True
    return found.is_global and not found.is_multicast


def check_url(url: str, allowed: Networks) -> None:
    """Refuse a URL at once that can't be one that we connect to; names are checked when they are used.

    Raises:
        InvalidInput: it is no http URL, it holds a password, or its host is no name or an address that is refused.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput(f"url: it is no URL: {error}.") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidInput("url: it must be one of http or https, with a host.")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("url: it must hold no user or password.")
    if ":" not in host and not _is_name(host):
        raise InvalidInput(f"url: {snippet(host, 80)} is no name of a host, and no address.")
    literal = "127.0.0.1" if host == "localhost" or host.endswith(".localhost") else host
    try:
        fine = is_allowed(literal, allowed)
    except ValueError:
        return  # a name
    if not fine:
        raise InvalidInput(f"url: {host} is not an address of the public internet.", hint=_SETTING)


def _is_name(host: str) -> bool:
    try:
        return _NAME.fullmatch(host.removesuffix(".").encode("idna").decode()) is not None
    except UnicodeError:
        return False


def guard_sockets(allowed: Networks) -> Callable[[AddrInfo], socket.socket]:
    """Makes the sockets of connections, but none to an address that is refused.

    Raises:
        AddressRefused: from the returned function.
    """

    def make(info: AddrInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if not is_allowed(address[0], allowed):
            raise AddressRefused
        return socket.socket(family, kind, protocol)

    return make


async def resolve(host: str, port: int, allowed: Networks) -> list[str]:
    """The addresses of a host that may be connected to, in the order of the resolver.

    Raises:
        AddressRefused: it has none but such that are refused.
        OSError: it can't be resolved.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a redirect's host that is no name
        raise socket.gaierror(f"{host} is no name of a host") from error
    fine = [str(info[4][0]) for info in found if is_allowed(str(info[4][0]), allowed)]
    if not fine:
        raise AddressRefused
    return list(dict.fromkeys(fine))


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to, where it does."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    return address
