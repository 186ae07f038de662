"""Every range of IANA's special-purpose registries is inside; what lies just beside one is not."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from slackwater_tasks.submission.public_address import is_public

V4 = {
    "this network": "0.0.0.0/8",
    "private use": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16",
    "shared": "100.64.0.0/10",
    "loopback": "127.0.0.0/8",
    "link local": "169.254.0.0/16",
    "protocol assignments": "192.0.0.0/24 192.0.0.0/29 192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32",
    "documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24",
    "AS112": "192.31.196.0/24 192.175.48.0/24",
    "AMT": "192.52.193.0/24",
    "6to4 relay": "192.88.99.0/24 192.88.99.2/32",
    "benchmarking": "198.18.0.0/15",
    "reserved": "240.0.0.0/4",
    "broadcast": "255.255.255.255/32",
    "multicast": "224.0.0.0/4",
}
V6 = {
    "loopback": "::1/128",
    "unspecified": "::/128",
    "v4-compatible": "::7f00:1/128 ::808:808/128 ::/96",
    "v4-translated": "::ffff:0:7f00:1/128 ::ffff:0:808:808/128 ::ffff:0:0:0/96",
    "NAT64 of a network's own": "64:ff9b:1::/48 64:ff9b:1::808:808/128",
    "discard": "100::/64",
    "dummy": "100:0:0:1::/64",
    "protocol assignments": "2001::/23",
    "Teredo": "2001::/32 2001:0:4136:e378:8000:63bf:3fff:fdd2/128",
    "anycast of protocols": "2001:1::1/128 2001:1::2/128 2001:1::3/128",
    "benchmarking": "2001:2::/48",
    "AMT": "2001:3::/32",
    "AS112": "2001:4:112::/48 2620:4f:8000::/48",
    "ORCHID": "2001:10::/28 2001:20::/28",
    "drone remote ID": "2001:30::/28",
    "documentation": "2001:db8::/32 3fff::/20",
    "6to4": "2002::/16 2002:7f00:1::/48 2002:808:808::/48",
    "segment routing": "5f00::/16",
    "unique local": "fc00::/7 fd00::/8",
    "link local": "fe80::/10",
    "site local": "fec0::/10",
    "multicast": "ff00::/8",
    "never given out": "4000::/2 8000::/1 1000::/4",
}


def ranges() -> list[str]:
    """Every range, one by one."""
    return [text for each in (*V4.values(), *V6.values()) for text in each.split()]


@pytest.mark.parametrize("text", ranges())
def test_a_special_range_is_inside_from_its_first_address_to_its_last(text: str) -> None:
    network = ip_network(text)
    ends = (network[0], network[network.num_addresses // 2], network[-1])
    assert [is_public(str(address)) for address in ends] == [False] * 3


@pytest.mark.parametrize("text", [text for each in V4.values() for text in each.split()])
def test_however_a_special_v4_address_is_wrapped(text: str) -> None:
    network = ip_network(text)
    for address in (network[0], network[-1]):
        for wrapped in (f"::ffff:{address}", f"64:ff9b::{address}", f"64:ff9b:1::{address}", f"::{address}"):
            assert not is_public(wrapped)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
     "192.0.1.0", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111", "2a00:1450::1",
     "2001:200::1", "2001:4860:4860::8888", "2003::1", "2620:4f:8001::1", "3ffe::1", "::ffff:1.1.1.1",
     "64:ff9b::101:101", "2606:4700::1111%eth0"],
)  # fmt: skip
def test_its_neighbours_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("text", ["", "x", "1.1.1", "127.1", "1.1.1.256", "::g", "[::1]"])
def test_what_is_no_address_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="does not appear"):
        is_public(text)
