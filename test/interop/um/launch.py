"""Starts a guest under User-Mode Linux with network cards: launch.py KERNEL DEVICE,MTU,MAC... -- ARGUMENT...

The guest's vec0, vec1, ... are packet sockets on those devices. Not tap devices: the kernel here signals a packet of a tap before epoll
shows it, so that User-Mode Linux looks too early, and the packet lies there until the next one. And not sockets that User-Mode Linux
opens by itself: their buffer has room for a few packets, and of a burst of UC or UD nothing is to be lost here.
"""
import os
import socket
import sys

# socket(7), packet(7); Python has no names for them
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
ETH_P_ALL = 3
BUFFER = 128 << 20


def packet_socket(device):
    card = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    card.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    card.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER)
    card.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    card.bind((device, ETH_P_ALL))
    os.set_inheritable(card.fileno(), True)
    return card.detach()


kernel, *words = sys.argv[1:]
end = words.index('--')
cards, arguments = words[:end], words[end + 1:]
for number, card in enumerate(cards):
    device, mtu, mac = card.split(',')
    descriptor = packet_socket(device)
    arguments.append(f'vec{number}:transport=fd,fd={descriptor},mtu={mtu},depth=64,mac={mac}')
guest = os.fork()
if guest == 0:
    os.setsid()  # a kernel that panics ends its whole process group
    os.execv(kernel, [kernel, *arguments])
# This is process 1 of a PID namespace. The kernel is not: process 1 cannot abort, and a kernel that panics would try for ever.
while True:
    ended, status = os.waitpid(-1, 0)
    if ended == guest:
        code = os.waitstatus_to_exitcode(status)
        sys.exit(code if code >= 0 else 128 - code)
