"""A program that breaks the rules of the device: hostile.py SOCKET SECONDS SEED PROTOCOL CALLS

Its queue pair writes to itself from memory that is overwritten meanwhile; messages and entries of its rings are random, or right but
for some bytes, and so are the counts and doorbells of the rings. Prints how many messages were answered, how many entries the
device completed, and how many connections it ended. PROTOCOL is the version of the protocol, CALLS its last call's number."""
import mmap
import os
import random
import socket
import struct
import sys
import time

PATH, SECONDS = sys.argv[1], float(sys.argv[2])
SEED, PROTOCOL, LAST_CALL = (int(number) for number in sys.argv[3:])
BASE, BYTES = 0x7000_0000_0000, 1 << 18
HELLO, QUERY_GIDS, ALLOC_PD, REG_MR, CREATE_CQ, RESIZE_CQ, CREATE_QP, MODIFY_QP = 1, 5, 6, 7, 10, 11, 16, 17
STATE, ACCESS, PKEY, PORT, AV, MTU, TIMEOUT, RETRY, RNR, RQ_PSN = (1 << bit for bit in (0, 3, 4, 5, 7, 8, 9, 10, 11, 12))
MAX_RD, MIN_RNR, SQ_PSN, MAX_DEST_RD, DEST = (1 << bit for bit in (13, 15, 16, 17, 20))
# Words of a control page, and of it all.
PRODUCER, CONSUMER, SLEEPING, ARMED, CONTROL = 16, 32, 48, 49, 64
rng = random.Random(SEED)
answered = ended = completed = 0


def words(*values):
    return struct.pack(f'<{len(values)}I', *values)


class Ring:
    def __init__(self, arena, offset, capacity, stride, number=0):
        self.arena, self.offset, self.capacity, self.stride, self.number = arena, offset, capacity, stride, number

    def get(self, word):
        return struct.unpack_from('<I', self.arena, self.offset + 4 * word)[0]

    def put(self, word, value):
        struct.pack_into('<I', self.arena, self.offset + 4 * word, value & 0xFFFF_FFFF)

    def at(self, index):
        return self.offset + 4 * (CONTROL + (index & (self.capacity - 1)) * self.stride)

    def add(self, entry):
        at, index = self.at(self.get(PRODUCER)), self.get(PRODUCER)
        self.arena[at : at + len(entry)] = entry
        self.put(PRODUCER, index + 1)

    def spoil(self):
        value = rng.choice((0, 1, 0x7FFF_FFFF, 0xFFFF_FFFF, rng.randrange(1 << 32), self.get(PRODUCER) + rng.randrange(8)))
        self.put(rng.choice((0, PRODUCER, CONSUMER, SLEEPING, ARMED, rng.randrange(CONTROL))), value)


class Connection:
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(PATH)
        hello = words(PROTOCOL) + b'hostile'.ljust(16, b'\0') + bytes(16 + 8)
        self.socket.sendall(words(len(hello), HELLO) + hello)
        self.files = [socket.recv_fds(self.socket, 1, 1)[1][0] for _ in range(4)]
        length, offset, capacity = struct.unpack('<III', self.take(8 + 16 + 12)[24:])
        self.memory = mmap.mmap(self.files[0], BYTES, offset=BASE)
        self.arena = mmap.mmap(self.files[1], length)
        self.bells = Ring(self.arena, offset, capacity, 1)
        self.socket.settimeout(1)

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

    def ring(self, number):
        self.bells.add(words(number))
        os.write(self.files[2], struct.pack('<Q', 1))

    def close(self):
        self.memory.close()
        self.arena.close()
        for file in self.files:
            os.close(file)
        self.socket.close()


def spoiled(message):
    message = bytearray(message)
    for _ in range(rng.randrange(1, 6)):
        message[rng.randrange(len(message))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
    return bytes(message)


def live(c):
    global completed
    gid = c.must(QUERY_GIDS, b'')[4:20]
    (pd,) = struct.unpack('<I', c.must(ALLOC_PD, b''))
    cq, _, offset, capacity, _ = struct.unpack('<IIIII', c.must(CREATE_CQ, words(256, 0, 0)))
    completions = Ring(c.arena, offset, capacity, 12)
    mr, lkey, rkey = struct.unpack('<III', c.must(REG_MR, words(pd, 7) + struct.pack('<QQQ', BASE, BYTES, BASE) + words(0)))
    made = struct.unpack('<15I', c.must(CREATE_QP, words(pd, 2, cq, cq, 0, 0) + words(64, 64, 4, 4, 64)))
    qp, qpn = made[:2]
    sends, receives = (Ring(c.arena, *made[i + 1 : i + 4], made[i]) for i in (7, 11))

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
    high, low = BASE >> 32, BASE & 0xFFFF_FFFF
    for _ in range(rng.randrange(20, 200)):
        # Half of them of one packet: their entries take another way through the engine.
        length = rng.randrange(rng.choice((1024, BYTES // 2)))
        # RDMA WRITE, signaled: header of 16 words, one element.
        write = words(2 << 8, 1, 0, 1, length, 0, high, low + BYTES // 2, rkey, *[0] * 7, high, low, length, lkey)
        # Whatever it has, the engine may be reading it.
        at = rng.randrange(BYTES - 4096)
        c.memory[at : at + 4096] = rng.randbytes(4096)
        kind = rng.randrange(48)
        number = sends.number
        if kind == 0:
            c.call(rng.randrange(2, LAST_CALL + 2), rng.randbytes(rng.randrange(200)))
        elif kind == 1:
            c.socket.sendall(rng.randbytes(rng.randrange(1, 400)))
        elif kind == 2:
            c.call(MODIFY_QP, spoiled(modify(*rng.choice(steps))))
        elif kind == 3:
            rng.choice((sends, receives, completions, c.bells)).spoil()
        elif kind == 4:
            number = rng.randrange(1 << 32)
        elif kind == 5:
            receives.add(rng.randbytes(4 * receives.stride))
            number = receives.number
        elif kind == 6:
            sends.add(rng.randbytes(4 * sends.stride))
        elif kind < 12:
            sends.add(spoiled(write))
        else:
            sends.add(write)
        c.ring(number)
        # It is answered once the device has taken what was posted before.
        c.call(RESIZE_CQ, words(0, 1))
        if completions.get(PRODUCER) != completions.get(CONSUMER):
            completed += (completions.get(PRODUCER) - completions.get(CONSUMER)) & 0xFF
            completions.put(CONSUMER, completions.get(PRODUCER))


end = time.monotonic() + SECONDS
# On a slow machine longer, until it has come to something.
while time.monotonic() < end or answered <= 100 or completed <= 20 or ended == 0:
    connection = Connection()
    try:
        live(connection)
    except (ConnectionError, BrokenPipeError):
        ended += 1
    except TimeoutError:
        pass  # It asked for more bytes than came.
    connection.close()
print(f'{answered} answered, {completed} completed, {ended} ended')
