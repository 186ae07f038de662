# attack: Sockets into the kernel: netlink, packets, raw, crypto, bluetooth, virtual buses
# expect: refused
# plain: escapes
for name, family, kind, protocol in (
    ("netlink", 16, 3, 0), ("audit", 16, 3, 9), ("packet", 17, 3, 768), ("raw", 2, 3, 1), ("crypto", 38, 5, 0),
    ("bluetooth", 31, 3, 1), ("can", 29, 3, 1), ("tipc", 30, 5, 0), ("xdp", 44, 3, 0), ("qrtr", 42, 2, 0),
):
    attempt(name, socket.socket, family, kind, protocol)
