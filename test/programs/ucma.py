"""Speaks the interface of /dev/infiniband/rdma_cm by itself, under `roce run`.

    ucma.py rules           checks errno of wrong commands, and descriptors; prints "ok"
    ucma.py hold PORT       listens, prints "listening" and stays
    ucma.py ended           prints "ready", waits until its device has ended, and looks at its channels; prints "ok"
    ucma.py channels N      opens channels, closes half, opens as many anew, and uses all; prints "ok"
    ucma.py wild SEED SECONDS
                            commands of all kinds with wild contents; prints "N commands, M succeeded, K channels"
"""
import ctypes
import errno
import fcntl
import os
import random
import select
import socket
import stat
import struct
import sys
import time

PATH = '/dev/infiniband/rdma_cm'
(CREATE_ID, DESTROY_ID, BIND_IP, RESOLVE_IP, RESOLVE_ROUTE, QUERY_ROUTE, CONNECT, LISTEN, ACCEPT, REJECT, DISCONNECT, INIT_QP_ATTR,
 GET_EVENT, GET_OPTION, SET_OPTION, NOTIFY, JOIN_IP_MCAST, LEAVE_MCAST, MIGRATE_ID, QUERY, BIND, RESOLVE_ADDR, JOIN_MCAST) = range(23)
TCP = 0x106
AF_IB = 27

room = ctypes.create_string_buffer(4096)
ROOM = ctypes.addressof(room)


def send(fd, command, payload, out=336, length=None):
    """Writes a command; 0 or errno."""
    head = struct.pack('<IHH', command, len(payload) if length is None else length, out)
    try:
        assert os.write(fd, head + payload) == 8 + len(payload)
        return 0
    except OSError as error:
        return error.errno


def number():
    return struct.unpack_from('<I', room, 0)[0]


def channel(flags=os.O_RDWR | os.O_CLOEXEC):
    return os.open(PATH, flags)


def create(fd, uid=1, space=TCP):
    assert send(fd, CREATE_ID, struct.pack('<QQHB5x', uid, ROOM, space, 2), 4) == 0
    return number()


def sockaddr(address, port):
    packed = struct.pack('<HH', socket.AF_INET, socket.htons(port)) + socket.inet_aton(address)
    return packed.ljust(28, b'\0')


def bind(fd, id, address='0.0.0.0', port=0):
    return send(fd, BIND_IP, struct.pack('<Q', 0) + sockaddr(address, port) + struct.pack('<I4x', id))


def resolve(fd, id, address, port):
    return send(fd, RESOLVE_IP, bytes(28) + sockaddr(address, port) + struct.pack('<II', id, 2000))


def destroy(fd, id):
    return send(fd, DESTROY_ID, struct.pack('<QII', ROOM, id, 0), 4)


def has_event(fd, wait=0):
    return bool(select.select([fd], [], [], wait)[0])


def expect(what, got, wanted):
    if got == wanted:
        return
    name = lambda value: errno.errorcode.get(value, value)
    print(f'{what}: {name(got)}, not {name(wanted)}')
    sys.exit(1)


def rules():
    fd = channel()
    expect('a character device', stat.S_ISCHR(os.fstat(fd).st_mode), True)
    expect('close-on-exec', fcntl.fcntl(fd, fcntl.F_GETFD), fcntl.FD_CLOEXEC)
    expect('no close-on-exec', fcntl.fcntl(channel(os.O_RDWR), fcntl.F_GETFD) & fcntl.FD_CLOEXEC, fcntl.FD_CLOEXEC)
    id = create(fd)

    # Commands that have the wrong form.
    try:
        os.write(fd, b'1234')
        expect('four bytes', 0, errno.EINVAL)
    except OSError as error:
        expect('four bytes', error.errno, errno.EINVAL)
    expect('a header that promises more', send(fd, LISTEN, bytes(4), length=8), errno.EINVAL)
    expect('half a command', send(fd, LISTEN, struct.pack('<I', id)), errno.EINVAL)
    expect('no command', send(fd, 99, bytes(64)), errno.EINVAL)
    expect('GET_OPTION', send(fd, GET_OPTION, bytes(64)), errno.ENOSYS)
    expect('no room', send(fd, QUERY_ROUTE, struct.pack('<QII', ROOM, id, 0), 8), errno.ENOSPC)
    expect('a response to nowhere', send(fd, QUERY_ROUTE, struct.pack('<QII', 8, id, 0)), errno.EFAULT)
    expect('an option from nowhere', send(fd, SET_OPTION, struct.pack('<QIIII', 8, id, 0, 0, 1)), errno.EFAULT)
    expect('a command from nowhere', wrong_pointer(fd), errno.EFAULT)
    expect('an option of two bytes', send(fd, SET_OPTION, struct.pack('<QIIII', ROOM, id, 0, 0, 2)), errno.EINVAL)
    expect('an unknown option', send(fd, SET_OPTION, struct.pack('<QIIII', ROOM, id, 0, 77, 1)), errno.ENOSYS)
    expect('a port space', send(fd, CREATE_ID, struct.pack('<QQHB5x', 1, ROOM, 0x999, 2), 4), errno.EINVAL)

    # Ids that are not there, or another channel's.
    expect('no id', destroy(fd, 0x7000_0000), errno.ENOENT)
    other = channel()
    expect('the id of another channel', bind(other, id), errno.EINVAL)
    expect('a file that is not a channel', send(other, MIGRATE_ID, struct.pack('<QII', ROOM, id, 0), 4), errno.EINVAL)
    expect('a descriptor that is closed', send(other, MIGRATE_ID, struct.pack('<QII', ROOM, id, 999), 4), errno.ENOENT)

    # States and addresses.
    expect('an address of AF_IB', send(fd, BIND, struct.pack('<IHHH', id, 48, 0, AF_IB).ljust(136, b'\0')), errno.EAFNOSUPPORT)
    expect('an address of another machine', bind(fd, id, '192.0.2.1'), errno.EADDRNOTAVAIL)
    expect('a route before an address', send(fd, RESOLVE_ROUTE, struct.pack('<II', id, 1)), errno.EINVAL)
    expect('attributes without a connection', send(fd, INIT_QP_ATTR, struct.pack('<QII', ROOM, id, 2)), errno.EINVAL)
    expect('a state that does not exist', send(fd, INIT_QP_ATTR, struct.pack('<QII', ROOM, id, 9)), errno.EINVAL)
    expect('to connect without parameters', send(fd, CONNECT, bytes(272) + struct.pack('<I', id).ljust(16, b'\0')), errno.EINVAL)
    expect('a wildcard', bind(fd, id), 0)
    expect('a second address', bind(fd, id), errno.EINVAL)
    expect('to listen', send(fd, LISTEN, struct.pack('<Ii', id, 3)), 0)
    expect('to listen twice', send(fd, LISTEN, struct.pack('<Ii', id, 3)), errno.EINVAL)
    expect('a group', send(fd, JOIN_IP_MCAST, struct.pack('<QQ', ROOM, 1) + sockaddr('10.1.1.1', 0) + struct.pack('<I', id), 4), errno.EINVAL)

    # Events: they wait, are counted, and are taken back.
    os.set_blocking(fd, False)
    get = struct.pack('<Q', ROOM)
    expect('no event', send(fd, GET_EVENT, get), errno.EAGAIN)
    expect('nothing to read', has_event(fd), False)
    own = sys.argv[2]
    ids = [create(fd) for _ in range(3)]
    for one in ids:
        expect('to resolve', resolve(fd, one, own, 4000), 0)
    expect('an event', has_event(fd, 60), True)
    expect('to take it', send(fd, GET_EVENT, get), 0)
    expect('the id of the event', struct.unpack_from('<QIII', room, 0)[1:], (ids[0], 0, 0))
    expect('to destroy', destroy(fd, ids[0]), 0)
    expect('events of the first', number(), 1)
    copy = os.dup(fd)
    epoll = select.epoll()
    epoll.register(copy, select.EPOLLIN)
    expect('epoll of a copy', epoll.poll(60), [(copy, select.EPOLLIN)])
    expect('to destroy by a copy', destroy(copy, ids[1]), 0)
    expect('events of the second', number(), 0)
    expect('the third event stays', has_event(fd), True)
    # It moves to another channel with its id.
    expect('to migrate', send(other, MIGRATE_ID, struct.pack('<QII', ROOM, ids[2], fd), 4), 0)
    expect('it has moved', (has_event(fd), has_event(other, 60)), (False, True))
    expect('the id has moved', destroy(fd, ids[2]), errno.EINVAL)
    expect('to destroy the third', destroy(other, ids[2]), 0)
    expect('no event is left', (has_event(fd), has_event(other)), (False, False))

    # The channel ends with its last copy, here in a child.
    port = 4711
    third = channel()
    listener = create(third)
    expect('to bind', bind(third, listener, own, port), 0)
    again = create(fd)
    expect('a port that is taken', bind(fd, again, own, port), errno.EADDRINUSE)
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(begin)
        os.read(end, 1)
        # A child has a connection of its own for commands.
        os._exit(send(third, QUERY_ROUTE, struct.pack('<QII', ROOM, listener, 0)))
    os.close(end)
    os.close(third)
    expect('a port that a child holds', bind(fd, again, own, port), errno.EADDRINUSE)
    os.close(begin)
    expect('the command of a child', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
    while (failed := bind(fd, again, own, port)) == errno.EADDRINUSE:
        time.sleep(0.01)
    expect('a port whose channel has ended', failed, 0)
    print('ok')


def wrong_pointer(fd):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    return ctypes.get_errno() if libc.write(fd, 8, 64) < 0 else 0


def hold(port):
    fd = channel()
    id = create(fd)
    assert bind(fd, id, port=port) == 0 and send(fd, LISTEN, struct.pack('<Ii', id, 3)) == 0
    print('listening', flush=True)
    time.sleep(600)


def ended():
    fd, waiting = channel(os.O_RDWR | os.O_NONBLOCK), channel()
    os.set_inheritable(fd, True)
    copy = os.dup(fd)
    id = create(fd)
    get = struct.pack('<Q', ROOM)
    print('ready', flush=True)
    expect('the end is seen', has_event(fd, 200), True)
    expect('the end', send(fd, GET_EVENT, get), errno.EIO)
    expect('a second look', has_event(fd), False)
    expect('no event', send(fd, GET_EVENT, get), errno.EAGAIN)
    expect('close-on-exec', fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC, 0)
    expect('a character device', stat.S_ISCHR(os.fstat(fd).st_mode), True)
    expect('another command', bind(fd, id), errno.EIO)
    expect('the end of a channel that waits', send(waiting, GET_EVENT, get), errno.EIO)
    expect('a second look at it', has_event(waiting), False)
    expect('close-on-exec of it', fcntl.fcntl(waiting, fcntl.F_GETFD), fcntl.FD_CLOEXEC)
    expect('the end of a copy', send(copy, GET_EVENT, get), errno.EIO)
    expect('a second look at the copy', has_event(copy), False)
    print('ok')


def wild(seed, seconds):
    pick = random.Random(seed)
    channels = [channel(os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK) for _ in range(3)]
    ids, commands, succeeded, opened = [], 0, 0, 3
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        fd = pick.choice(channels)
        command = pick.choice([CREATE_ID, RESOLVE_IP, GET_EVENT, pick.randrange(26)])
        id = pick.choice(ids) if ids and pick.random() < 0.9 else pick.getrandbits(32)
        pointer = ROOM if pick.random() < 0.9 else pick.choice([0, 8, 1 << 47, (1 << 64) - 8])
        address = pick.choice(['127.0.0.76', '127.0.0.77', '127.0.0.1', '0.0.0.0', '239.1.1.1', '192.0.2.1'])
        place = sockaddr(address, pick.choice([0, 7, 7, 9, 65535]))
        port_space = pick.choice([TCP, TCP, 0x111, 2, 0x13f, pick.getrandbits(16)])
        parameters = pick.randbytes(264) + bytes([pick.choice([0, 10, 255]), 0, 1, 1, 0, 10, 10, pick.randrange(2)])
        payload = {
            CREATE_ID: lambda: struct.pack('<QQHB5x', 1, pointer, port_space, pick.randrange(12)),
            BIND_IP: lambda: bytes(8) + place + struct.pack('<I4x', id),
            RESOLVE_IP: lambda: pick.choice([bytes(28), place]) + place + struct.pack('<II', id, 1),
            CONNECT: lambda: parameters + struct.pack('<IIQ', id, 0, 0),
            ACCEPT: lambda: bytes(8) + parameters + struct.pack('<IIQ', id, 0, 0),
            LISTEN: lambda: struct.pack('<Ii', id, pick.randrange(-2, 5)),
            REJECT: lambda: struct.pack('<IBB2x', id, pick.getrandbits(8), pick.choice([0, 28, 3])) + bytes(256),
            SET_OPTION: lambda: struct.pack('<QIIII', pointer, id, pick.randrange(3), pick.randrange(5), pick.choice([1, 4, 1 << 31])),
            JOIN_IP_MCAST: lambda: struct.pack('<QQ', pointer, 1) + place + struct.pack('<I', id),
            MIGRATE_ID: lambda: struct.pack('<QII', pointer, id, pick.choice(channels + [0, 1, 999])),
            RESOLVE_ROUTE: lambda: struct.pack('<II', id, 1),
            DISCONNECT: lambda: struct.pack('<I', id),
            NOTIFY: lambda: struct.pack('<II', id, 4),
        }.get(command, lambda: struct.pack('<QII', pointer, id, pick.randrange(8)))()
        if pick.random() < 0.1:
            length = pick.randrange(len(payload) + 1)
            # Not amid a pointer, which are in the first bytes: half of one may lead into this program itself, as in the kernel.
            payload = payload[: length - length % 8 if length < 16 else length]
        if pick.random() < 0.05:
            payload = pick.randbytes(pick.randrange(600))
        if command == DESTROY_ID and pick.random() < 0.5:
            continue
        out = 336 if pick.random() < 0.95 else pick.getrandbits(16)
        failed = send(fd, command, payload, out)
        commands += 1
        succeeded += failed == 0
        if failed == 0 and command == CREATE_ID and pointer == ROOM:
            ids.append(number())
        if failed == 0 and command == GET_EVENT and pointer == ROOM:
            ids.append(struct.unpack_from('<QI', room, 0)[1])
        ids = ids[-200:]
        # Closed in the middle.
        if pick.random() < 0.01:
            at = pick.randrange(len(channels))
            os.close(channels[at])
            channels[at] = channel(os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            opened += 1
    print(f'{commands} commands, {succeeded} succeeded, {opened} channels')


def channels(count):
    opened = [channel() for _ in range(count)]
    # Known by another number, too.
    high = fcntl.fcntl(opened[0], fcntl.F_DUPFD_CLOEXEC, 5000)
    for fd in opened[::2]:
        os.close(fd)
    opened = [high] + opened[1::2] + [channel() for _ in range(count)]
    for fd in opened:
        create(fd)
    print('ok')


mode = sys.argv[1]
if mode == 'rules':
    rules()
elif mode == 'ended':
    ended()
elif mode == 'channels':
    channels(int(sys.argv[2]))
elif mode == 'hold':
    hold(int(sys.argv[2]))
else:
    wild(int(sys.argv[2]), float(sys.argv[3]))
