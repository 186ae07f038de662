"""Which IP addresses belong to the public Internet: none of a range that IANA's registries reserve.

The lists are those of the registries "IPv4 Special-Purpose Address Space" and "IPv6 Special-Purpose Address Space" (RFC
6890 and what updates it), multicast and what was given up since. Python's own ``is_global`` follows them by its version,
and calls public what a network may well use inside.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

SPECIAL_V4: Final = tuple(map(ip_network, (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
)))  # fmt: skip
UNICAST_V6: Final = ip_network("2000::/3")
"""All ranges given out. What lies outside is local, special, or not assigned yet."""
SPECIAL_V6: Final = tuple(map(ip_network, (
    "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
)))  # fmt: skip
"""Reserved ranges among those: protocol assignments (Teredo, ORCHID, benchmarking …), documentation, 6to4, AS112."""
HOLDING_V4: Final = (ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96"))
"""Mapped addresses, and the well-known NAT64 prefix: the address inside is judged."""


def is_public(address: str) -> bool:
    """Whether an IP address is public; ``ValueError`` for text that is no address."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        if not any(ip in network for network in HOLDING_V4):
            return ip in UNICAST_V6 and not any(ip in network for network in SPECIAL_V6)
        ip = IPv4Address(int(ip) & 0xFFFFFFFF)
    return not any(ip in network for network in SPECIAL_V4)
