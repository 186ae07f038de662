# attack: Connect without the call that connects: data with the first packet, datagrams, multicast, a known way past rules
# expect: refused
# plain: escapes
def fast(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(2)
        one.sendto(b"x", 0x20000000, address)
        return one.recv(16) or "connected"


def datagram(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(1)
        one.sendto(b"x", address)
        return one.recv(16)


port = TARGET["tcp_port"]
attempt("with the first packet", fast, socket.AF_INET, ("127.0.0.1", port))
attempt("mapped", fast, socket.AF_INET6, ("::ffff:127.0.0.1", port))
attempt("a datagram", datagram, ("127.0.0.1", TARGET["udp_port"]))
attempt("the name of nobody", datagram, ("0.0.0.0", TARGET["udp_port"]))
attempt("an address of the cloud's", fast, socket.AF_INET, ("169.254.169.254", 80))
