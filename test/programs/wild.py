"""A program whose calls have the right form and wild contents: wild.py SOCKET SECONDS SEED PROTOCOL

Calls name objects that are there (mostly) and carry wild numbers; entries of every kind go into the rings; objects end in any order.
hostile.py breaks the form instead. Prints connections, those that the device ended, calls, and calls that succeeded. Fails where the
device gives no answer for PATIENCE seconds."""
import ctypes
import mmap
import os
import random
import socket
import struct
import sys
import time

PATH, SECONDS = sys.argv[1], float(sys.argv[2])
SEED, PROTOCOL = (int(number) for number in sys.argv[3:])
PATIENCE = 300
# Calls that are made however long they take.
LEAST = 300
BASE, BYTES = 0x7000_0000_0000, 1 << 18
(HELLO, LISTEN, ALLOC_PD, REG_MR, REREG_MR, CREATE_CHANNEL, CREATE_CQ, RESIZE_CQ, CREATE_SRQ, MODIFY_SRQ, QUERY_SRQ, CREATE_AH, CREATE_QP,
 MODIFY_QP, QUERY_QP, ATTACH_MCAST, DETACH_MCAST, ALLOC_MW, DESTROY, POST_SRQ_OP) = (1, 2, *range(6, 24))
STATE, ACCESS, PKEY, PORT, QKEY, AV, MTU, TIMEOUT, RETRY, RNR, RQ_PSN = (1 << bit for bit in (0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))
MAX_RD, MIN_RNR, SQ_PSN, MAX_DEST_RD, CAP, DEST = (1 << bit for bit in (13, 15, 16, 17, 19, 20))
RESET, INIT, RTR, RTS = range(4)
RC, UD = 2, 4
# Words of a control page, and of it all.
PRODUCER, CONSUMER, ARMED, CONTROL = 16, 32, 49, 64
ATOMICS, BIND_MW = (5, 6), 8
EDGES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 63, 64, 255, 256, 1023, 4096, 65535, 65536, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
rng = random.Random(SEED)
# Memory of our own, which no object of Python has.
MAP_FIXED = 0x10
LIBC = ctypes.CDLL(None)
LIBC.mmap.restype = ctypes.c_void_p
OWN = LIBC.mmap(None, ctypes.c_size_t(BYTES), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))


def words(*values):
    return struct.pack(f'<{len(values)}I', *(value & 0xFFFF_FFFF for value in values))


def doubles(*values):
    return struct.pack(f'<{len(values)}Q', *(value & (1 << 64) - 1 for value in values))


def numbers(data):
    return struct.unpack(f'<{len(data) // 4}I', data)


def wild():
    return rng.choice((*EDGES, rng.randrange(1 << 32), rng.randrange(64)))


def small(limit=64):
    """Mostly below the limit."""
    return rng.randrange(limit) if rng.random() < 0.93 else wild()


class Ended(Exception):
    """The device ended the connection."""


class Ring:
    def __init__(self, kind, number, offset, capacity, stride):
        self.kind, self.number, self.offset, self.capacity, self.stride = kind, number, offset, capacity, stride


class Connection:
    def __init__(self):
        self.objects = {kind: [] for kind in ('pd', 'cq', 'channel', 'mr', 'mw', 'ah', 'qp', 'srq')}
        self.rings, self.listeners, self.files = [], [], []
        self.calls = self.succeeded = 0
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(PATH)
        hello = words(PROTOCOL) + b'wild'.ljust(16, b'\0') + bytes(16 + 8)
        self.socket.sendall(words(len(hello), HELLO) + hello)
        for _ in range(4):
            _, files, *_ = socket.recv_fds(self.socket, 1, 1)
            if not files:
                raise Ended
            self.files += files
        reply = self.take(8 + 16 + 12)
        self.token = reply[8:24]
        length, self.bells, self.bell_count = numbers(reply[24:])
        self.hand_over()
        self.memory = mmap.mmap(self.files[0], BYTES, offset=BASE)
        self.arena = mmap.mmap(self.files[1], length)

    def hand_over(self):
        """The descriptor of our memory, mostly, or another one, or nothing."""
        path, flags = rng.choice((*[('/proc/self/mem', os.O_RDWR)] * 6, ('/proc/self/mem', os.O_RDONLY), ('/dev/zero', os.O_RDWR), (None, 0)))
        with socket.socket(fileno=os.dup(self.files[3])) as end:
            if path is not None:
                fd = os.open(path, flags)
                socket.send_fds(end, [b'x'], [fd])
                os.close(fd)

    def close(self):
        for one in (*self.listeners, self.memory, self.arena, self.socket):
            one.close()
        for file in self.files:
            os.close(file)

    def take(self, length):
        data = b''
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise Ended
            data += more
        return data

    def call(self, number, payload):
        """The numbers of the reply; None where the call failed."""
        try:
            self.socket.sendall(words(len(payload), number) + payload)
        except OSError:
            raise Ended from None
        length, error = numbers(self.take(8))
        reply = self.take(length)
        self.calls += 1
        if error != 0:
            return None
        self.succeeded += 1
        return numbers(reply[: length & ~3])

    def create(self, kind, number, payload):
        made = self.call(number, payload)
        if made is not None:
            self.objects[kind].append(made)
        return made

    def pick(self, kind):
        """The numbers of an object, mostly one of that kind; four at least."""
        if self.objects[kind] and rng.random() < 0.97:
            found = rng.choice(self.objects[kind])
        else:
            found = rng.choice([(wild(),), *(one for ones in self.objects.values() for one in ones)])
        return (*found, 0, 0, 0)

    def get(self, at):
        return struct.unpack_from('<I', self.arena, at)[0]

    def put(self, at, value):
        struct.pack_into('<I', self.arena, at, value & 0xFFFF_FFFF)

    def ring_bell(self, number):
        produced = self.get(self.bells + 4 * PRODUCER)
        self.put(self.bells + 4 * (CONTROL + (produced & (self.bell_count - 1))), number)
        self.put(self.bells + 4 * PRODUCER, produced + 1)
        os.write(self.files[2], doubles(1))

    def qpn(self):
        return rng.choice(self.objects['qp'])[1] if self.objects['qp'] else wild()


def gid():
    return bytes(10) + b'\xff\xff' + bytes([127, 0, 0, rng.choice((76, 77, 3))]) if rng.random() < 0.9 else rng.randbytes(16)


def address():
    valid = [1 if rng.random() < 0.95 else wild() for _ in range(2)]
    return gid() + words(wild() & 0xFFFFF, small(2), 64, small(256), 0, small(8), 0, 0, *valid)


def protection_domain(c):
    c.create('pd', ALLOC_PD, b'')


def place():
    """A start and a kind of memory: of the common file, or our own."""
    kind = rng.choice((0, 0, 1, 1, 1, 1, small(2)))
    return (BASE if kind == 0 else OWN) + small(8192), kind


def memory_region(c):
    start, kind = place()
    range_ = doubles(start, rng.choice((8, 4096, BYTES // 2, small(5000))), rng.choice((BASE, 0, wild() << 20)))
    c.create('mr', REG_MR, words(c.pick('pd')[0], small()) + range_ + words(kind))


def pages_that_go(_):
    """A page of our own memory goes, or is there again."""
    page = OWN + 4096 * rng.randrange(BYTES // 4096)
    if rng.random() < 0.5:
        LIBC.munmap(ctypes.c_void_p(page), ctypes.c_size_t(4096))
    else:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
        protection = rng.choice((3, 3, 3, 1, 0))
        LIBC.mmap(ctypes.c_void_p(page), ctypes.c_size_t(4096), protection, flags, -1, ctypes.c_long(0))


def another_region(c):
    start, kind = place()
    range_ = doubles(start, rng.choice((8, 4096, 65536))) + words(kind)
    c.call(REREG_MR, words(c.pick('mr')[0], small(8), c.pick('pd')[0], small()) + range_)


def window(c):
    c.create('mw', ALLOC_MW, words(c.pick('pd')[0], rng.choice((1, 2, wild()))))


def channel(c):
    c.create('channel', CREATE_CHANNEL, b'')


def completion_queue(c):
    made = c.create('cq', CREATE_CQ, words(rng.choice((1, 8, 64, 256, wild())), rng.choice((0, 0, c.pick('channel')[0])), small(4)))
    if made:
        c.rings.append(Ring('completions', 0, *made[2:5]))


def resize(c):
    made = c.call(RESIZE_CQ, words(c.pick('cq')[0], rng.choice((1, 8, 64, 1024, wild()))))
    if made:
        c.rings.append(Ring('completions', 0, *made[1:4]))


def shared_queue(c):
    tags = (c.pick('cq')[0], rng.choice((1, 16, 64, wild()))) if rng.random() < 0.4 else (0, 0)
    made = c.create('srq', CREATE_SRQ, words(c.pick('pd')[0], rng.choice((1, 16, 100, wild())), small(6), small(4), *tags, small()))
    if made:
        c.rings.append(Ring('receives', *made[4:8]))


def change_shared_queue(c):
    c.call(MODIFY_SRQ, words(c.pick('srq')[0], rng.choice((1, 2, 3, wild())), rng.choice((1, 64, 200, wild())), small(50)))
    c.call(QUERY_SRQ, words(c.pick('srq')[0]))


def tag_list(c):
    operation = rng.choice((0, 1, 2, wild()))
    count = small(5) & 7
    payload = words(c.pick('srq')[0]) + doubles(1) + words(operation, wild(), small(4), small(80)) + doubles(2, wild(), wild()) + words(count)
    for _ in range(count):
        payload += doubles(BASE + small(4096)) + words(small(4096), c.pick('mr')[1])
    c.call(POST_SRQ_OP, payload)


def address_handle(c):
    c.create('ah', CREATE_AH, words(c.pick('pd')[0]) + address())


def queue_pair(c):
    service = rng.choice((RC, RC, RC, 3, UD, UD, 8, small(10)))
    queues = (c.pick('cq')[0], c.pick('cq')[0], rng.choice((0, 0, 0, c.pick('srq')[0])))
    depths = (rng.choice((1, 16, 64, wild())), rng.choice((0, 1, 16, 64, wild())), small(6), small(6), rng.choice((0, 64, 128, wild())))
    made = c.call(CREATE_QP, words(c.pick('pd')[0], service, *queues, small(2), *depths))
    if made is None:
        return
    c.objects['qp'].append((*made, service))
    for kind, at in (('sends', 7), ('receives', 11)):
        if at + 4 <= len(made):
            c.rings.append(Ring(kind, *made[at : at + 4]))


def attributes(c, state):
    peer = c.qpn() if rng.random() < 0.9 else wild()
    first = (state, small(7), small(6), 0, rng.choice((0x11, wild())), wild() & 0xFFFFFF, wild() & 0xFFFFFF, peer)
    then = (small(), 0, small(2), small(20), small(20), small(32), 1, small(32), small(8), small(8), wild() if rng.random() < 0.2 else 0)
    return words(*first, *then, small(200), small(200), small(8), small(8), small(300)) + address()


def change_queue_pair(c):
    pair = c.pick('qp')
    service = pair[-4]
    state = rng.choice((RESET, INIT, INIT, RTR, RTR, RTS, RTS, RTS, 4, 5, 6))
    mask = STATE
    if state == INIT:
        mask |= PKEY | PORT | (QKEY if service == UD else ACCESS)
    if state == RTR and service != UD:
        mask |= AV | MTU | DEST | RQ_PSN | (MAX_DEST_RD | MIN_RNR if service == RC else 0)
    if state == RTS:
        mask |= SQ_PSN | (TIMEOUT | RETRY | RNR | MAX_RD if service == RC else 0)
    if rng.random() < 0.15:
        mask |= 1 << rng.randrange(26)
    c.call(MODIFY_QP, words(pair[0], CAP if rng.random() < 0.05 else mask) + attributes(c, state))
    c.call(QUERY_QP, words(pair[0], wild()))


def group(c):
    target = rng.choice((b'\xff\x0e' + bytes(14), bytes(10) + b'\xff\xff\xe0\1\1\1', rng.randbytes(16)))
    c.call(rng.choice((ATTACH_MCAST, DETACH_MCAST)), words(c.pick('qp')[0]) + target)


def destroy(c):
    handle = c.pick(rng.choice(list(c.objects)))[0]
    if c.call(DESTROY, words(handle)) is None:
        return
    for ones in c.objects.values():
        ones[:] = [one for one in ones if one[0] != handle]


def listen(c):
    listener = socket.socket(socket.AF_UNIX)
    listener.connect(PATH)
    payload = c.token + words(rng.choice((0, c.pick('channel')[0])))
    listener.sendall(words(len(payload), LISTEN) + payload)
    c.listeners.append(listener)
    if len(c.listeners) > 3:
        c.listeners.pop(0).close()


def store(c):
    c.memory[0:4096] = rng.randbytes(4096)


def control_words(c):
    """Takes the completions of a queue, or spoils a word of another ring's control page."""
    if not c.rings:
        return
    ring = rng.choice(c.rings)
    if ring.kind == 'completions':
        c.put(ring.offset + 4 * CONSUMER, c.get(ring.offset + 4 * PRODUCER))
        if rng.random() < 0.3:
            c.put(ring.offset + 4 * ARMED, rng.choice((0, 1, 2, wild())))
    elif rng.random() < 0.1:
        c.put(ring.offset + 4 * rng.randrange(CONTROL), wild())


def element(c):
    return words(BASE >> 32, (BASE & 0xFFFF_FFFF) + small(8192), rng.choice((0, 8, 64, 1024, 5000, small(9000))), c.pick('mr')[1])


def entry(c, kind):
    count = rng.choice((0, 1, 1, 1, 2, small(8)))
    elements = [element(c) for _ in range(min(count, 6))]
    length = sum(numbers(one)[2] for one in elements) if rng.random() < 0.95 else wild()
    if kind == 'receives':
        return words(5, 0, count, length) + b''.join(elements)
    operation = rng.choice((*range(10), 15, small(20)))
    head = (operation | rng.choice((2, 2, 3, 6, 8, 10, small(32))) << 8, 1, 0)
    region, bound = c.pick('mr'), c.pick('mw')
    low = BASE & 0xFFFF_FFFF
    if operation == BIND_MW:
        rest = (0, 0, bound[2], BASE >> 32, low + small(4096), bound[1] + 1, 0, small(5000), region[1], small(), 0, 0, 0)
    elif operation in ATOMICS:
        rest = (count, length, 0, BASE >> 32, low + 8 * small(600), region[2], 0, wild(), 0, wild(), 0, 0, 0)
    else:
        target = (BASE >> 32, low + small(8192), rng.choice((region[2], bound[1])))
        rest = (count, length, rng.choice((region[2], wild())), *target, c.pick('ah')[1], c.qpn(), 0x11, 0, 0, 0, 0)
    return words(*head, *rest) + (b''.join(elements) if rng.random() < 0.9 else rng.randbytes(64))


def post(c):
    rings = [ring for ring in c.rings if ring.kind != 'completions' and ring.capacity > 0]
    if not rings:
        return
    ring = rng.choice(rings)
    for _ in range(rng.choice((1, 1, 2, 5))):
        produced, consumed = (c.get(ring.offset + 4 * word) for word in (PRODUCER, CONSUMER))
        if (produced - consumed) & 0xFFFF_FFFF >= ring.capacity and rng.random() < 0.99:
            break
        data = bytearray(entry(c, ring.kind)[: 4 * ring.stride])
        if rng.random() < 0.08:
            data[rng.randrange(len(data))] = rng.randrange(256)
        at = ring.offset + 4 * (CONTROL + (produced & (ring.capacity - 1)) * ring.stride)
        c.arena[at : at + len(data)] = bytes(data)
        c.put(ring.offset + 4 * PRODUCER, produced + 1)
    c.ring_bell(ring.number if rng.random() < 0.99 else wild())


STEPS = {
    protection_domain: 4, memory_region: 4, another_region: 2, pages_that_go: 3, window: 2, channel: 2, completion_queue: 5, resize: 2, shared_queue: 4,
    change_shared_queue: 3, tag_list: 3, address_handle: 3, queue_pair: 8, change_queue_pair: 16, group: 2, destroy: 6, listen: 1,
    store: 1, control_words: 3, post: 28,
}
end = time.monotonic() + SECONDS
connections = ended = calls = succeeded = 0


def is_over(c):
    return time.monotonic() > end and calls + (c.calls if c else 0) >= LEAST


while not is_over(None):
    c = None
    try:
        c = Connection()
        connections += 1
        for step in rng.choices(list(STEPS), list(STEPS.values()), k=rng.randrange(200, 3000)):
            if is_over(c):
                break
            step(c)
    except TimeoutError:
        sys.exit(f'no answer of the device in {PATIENCE} s')
    except (Ended, OSError):
        ended += 1
    if c is not None:
        calls += c.calls
        succeeded += c.succeeded
        c.close()
print(f'{connections} connections, {ended} ended, {calls} calls, {succeeded} succeeded')
