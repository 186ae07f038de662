# attack: Reach the node's own servers by their local sockets
# expect: refused
# plain: escapes
def connect(address):
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        link.connect(address)
        return link.recv(16)


attempt("a socket in the file system", connect, TARGET["unix_socket"])
attempt("a socket with an abstract name", connect, b"\0" + TARGET["abstract_socket"].encode())
attempt("Docker", connect, "/var/run/docker.sock")
