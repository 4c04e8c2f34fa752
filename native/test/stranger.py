"""Sends a TCP socket whose last close(2) waits for hours, as another user, to the local socket with the name of its argument."""
import array
import os
import socket
import struct
import sys

os.setgroups([])
os.setgid(65534)
os.setuid(65534)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
listener.bind(("127.0.0.1", 0))
listener.listen(1)
client = socket.socket()
client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
client.connect(listener.getsockname())
peer, _ = listener.accept()
client.setblocking(False)
try:
    while True:
        client.send(bytes(65536))
except BlockingIOError:
    pass
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10_000))
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [client.fileno()]))
try:
    sender.sendmsg([b"xx"], [rights], 0, b"\0" + sys.argv[1].encode())
    client.close()  # The message holds it.
    print("sent", flush=True)
except PermissionError:  # Linux 6.16: the receiver allows no descriptors.
    print("refused", flush=True)
sys.stdin.read()
