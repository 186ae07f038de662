# attack: Reach services on this machine and beyond
# expect: refused
# plain: escapes
def connect(family, address):
    with socket.socket(family) as link:
        link.settimeout(1.0)
        link.connect(address)
        return link.recv(16)


def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.sendto(b"x", ("127.0.0.1", TARGET["udp_port"]))
        link.settimeout(1.0)
        return link.recv(16)


attempt("a service on the loopback", connect, socket.AF_INET, ("127.0.0.1", TARGET["tcp_port"]))
attempt("the same by IPv6", connect, socket.AF_INET6, ("::ffff:127.0.0.1", TARGET["tcp_port"]))
attempt("a datagram", datagram)
attempt("the cloud's metadata", connect, socket.AF_INET, ("169.254.169.254", 80))
