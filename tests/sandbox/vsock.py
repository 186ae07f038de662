# attack: Reach the hypervisor by a vsock: no network namespace holds it
# expect: refused
# plain: escapes
attempt("a vsock", socket.socket, 40, socket.SOCK_STREAM)
attempt("a vsock datagram", socket.socket, 40, socket.SOCK_DGRAM)
