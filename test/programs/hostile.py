"""A program that breaks the rules of the device: hostile.py SOCKET SECONDS SEED

Its queue pair writes to itself from memory that is overwritten meanwhile; messages are random, or right but for some bytes. Prints
how many messages were answered, and how many connections the device ended."""
import mmap
import os
import random
import socket
import struct
import sys
import time

PATH, SECONDS, SEED = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
BASE, BYTES = 0x7000_0000_0000, 1 << 18
HELLO, QUERY_GIDS, ALLOC_PD, REG_MR, CREATE_CQ, POLL_CQ, CREATE_QP, MODIFY_QP, POST_SEND = 1, 5, 6, 7, 9, 11, 17, 18, 20
STATE, ACCESS, PKEY, PORT, AV, MTU, TIMEOUT, RETRY, RNR, RQ_PSN = (1 << bit for bit in (0, 3, 4, 5, 7, 8, 9, 10, 11, 12))
MAX_RD, MIN_RNR, SQ_PSN, MAX_DEST_RD, DEST = (1 << bit for bit in (13, 15, 16, 17, 20))
rng = random.Random(SEED)
answered = ended = 0


def words(*values):
    return struct.pack(f'<{len(values)}I', *values)


class Connection:
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(1)
        self.socket.connect(PATH)
        hello = words(1, os.getpid()) + b'hostile'.ljust(16, b'\0') + bytes(16)
        self.socket.sendall(words(len(hello), HELLO) + hello)
        _, (self.file,), _, _ = socket.recv_fds(self.socket, 1, 1)
        self.take(8 + 16)
        self.memory = mmap.mmap(self.file, BYTES, offset=BASE)

    def take(self, length):
        data = b''
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def call(self, number, payload):
        global answered
        self.socket.sendall(words(len(payload), number) + payload)
        length, errno = struct.unpack('<II', self.take(8))
        answered += 1
        return errno, self.take(length)

    def must(self, number, payload):
        errno, reply = self.call(number, payload)
        assert errno == 0, (number, errno)
        return reply

    def close(self):
        self.memory.close()
        os.close(self.file)
        self.socket.close()


def spoiled(message):
    message = bytearray(message)
    for _ in range(rng.randrange(1, 6)):
        message[rng.randrange(len(message))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
    return bytes(message)


def live(c):
    gid = c.must(QUERY_GIDS, b'')[4:20]
    (pd,) = struct.unpack('<I', c.must(ALLOC_PD, b''))
    (cq, _) = struct.unpack('<II', c.must(CREATE_CQ, words(256, 0)))
    mr, lkey, rkey = struct.unpack('<III', c.must(REG_MR, words(pd, 7) + struct.pack('<QQQ', BASE, BYTES, BASE)))
    qp, qpn = struct.unpack('<II', c.must(CREATE_QP, words(pd, 2, cq, cq, 0, 0) + words(64, 64, 4, 4, 64))[:8])

    def modify(state, mask):
        attributes = words(state, 0, 3, 0, 0, 5, 5, qpn, 7, 0, 0, 4, 4, 12, 1, 10, 1, 1, 0, 0, 0, 0, 0, 0)
        return words(qp, mask) + attributes + gid + words(0, 0, 64, 0, 0, 0, 0, 0, 1, 1)

    steps = [
        (1, STATE | PKEY | PORT | ACCESS),
        (2, STATE | AV | MTU | DEST | RQ_PSN | MAX_DEST_RD | MIN_RNR),
        (3, STATE | TIMEOUT | RETRY | RNR | SQ_PSN | MAX_RD),
    ]
    for step in steps:
        c.must(MODIFY_QP, modify(*step))
    for _ in range(rng.randrange(20, 200)):
        length = rng.randrange(BYTES // 2)
        write = struct.pack('<QIIIQIQQIII', 1, 0, 2, 0, BASE + BYTES // 2, rkey, 0, 0, 0, 0, 0)
        post = words(qp, 1) + write + words(1) + struct.pack('<QII', BASE, length, lkey)
        # Whatever it has, the engine may be reading it.
        at = rng.randrange(BYTES - 4096)
        c.memory[at : at + 4096] = rng.randbytes(4096)
        kind = rng.randrange(40)
        if kind == 0:
            c.call(rng.randrange(2, 30), rng.randbytes(rng.randrange(200)))
        elif kind == 1:
            c.socket.sendall(rng.randbytes(rng.randrange(1, 400)))
        elif kind == 2:
            c.call(MODIFY_QP, spoiled(modify(*rng.choice(steps))))
        elif kind < 8:
            c.call(POST_SEND, spoiled(post))
        else:
            c.call(POST_SEND, post)
        c.call(POLL_CQ, words(cq, 16))


end = time.monotonic() + SECONDS
while time.monotonic() < end:
    connection = Connection()
    try:
        live(connection)
    except (ConnectionError, BrokenPipeError):
        ended += 1
    except TimeoutError:
        pass  # It asked for more bytes than came.
    connection.close()
print(f'{answered} answered, {ended} ended')
