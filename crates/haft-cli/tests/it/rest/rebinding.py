"""Runs a command in a small private network: a DNS name whose answer changes, a public server and a private server.

The first argument lists the successive DNS answers; `+` joins several addresses of one answer. The second argument is the
reply of the public server. The other arguments are the command. At the end, prints the contacted servers on standard error.
"""

import fcntl
import socket
import struct
import subprocess
import sys
import tempfile
import threading

PUBLIC, PRIVATE = "93.184.216.34", "127.0.0.1"
SET_ADDRESS, SET_FLAGS, UP_AND_RUNNING = 0x8916, 0x8914, 0x41
answers, says, command = sys.argv[1].split(","), sys.argv[2], sys.argv[3:]
connected = {PUBLIC: 0, PRIVATE: 0}


def bring_up(interface, address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SET_ADDRESS, struct.pack("16sHH4s8x", interface, socket.AF_INET, 0, socket.inet_aton(address)))
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sh14x", interface, UP_AND_RUNNING))


def names():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((PRIVATE, 53))
    return server


def answer_names(server):
    asked = 0
    while True:
        query, who = server.recvfrom(512)
        end = query.index(0, 12) + 5
        addresses = []
        # Count only queries for IPv4 addresses, and return no address for other queries.
        if struct.unpack("!H", query[end - 4 : end - 2])[0] == 1:
            addresses = answers[min(asked, len(answers) - 1)].split("+")
            asked += 1
        head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, len(addresses), 0, 0)
        records = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + socket.inet_aton(a) for a in addresses)
        server.sendto(head + query[12:end] + records, who)


def serve(address):
    server = socket.create_server((address, 80))
    while True:
        client, _ = server.accept()
        connected[address] += 1
        while b"\r\n\r\n" not in client.recv(65536):
            pass
        body = says if address == PUBLIC else "HTTP/1.1 200 OK\r\n\r\nthe private one"
        client.sendall(body.encode().decode("unicode_escape").encode())
        client.close()


bring_up(b"lo", PRIVATE)
bring_up(b"lo:1", PUBLIC)
with tempfile.NamedTemporaryFile("w") as resolv:
    resolv.write(f"nameserver {PRIVATE}\noptions timeout:1 attempts:1\n")
    resolv.flush()
    subprocess.run(["mount", "--bind", resolv.name, "/etc/resolv.conf"], check=True)
    threading.Thread(target=answer_names, args=(names(),), daemon=True).start()
    for address in (PUBLIC, PRIVATE):
        threading.Thread(target=serve, args=(address,), daemon=True).start()
    code = subprocess.run(command).returncode
print(f"public {connected[PUBLIC]}, private {connected[PRIVATE]}", file=sys.stderr)
sys.exit(code)
