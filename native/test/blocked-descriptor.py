"""A file system that answers everything but STATFS: blocked-descriptor.py FILE COMMAND… mounts it over FILE, and runs the command with an
open file of it as descriptor 3. Exit code 77 where that is not allowed."""
import ctypes
import fcntl
import os
import stat
import struct
import subprocess
import sys
import threading

INIT, GETATTR, OPEN, STATFS, INTERRUPT = 26, 3, 14, 17, 36
LIBC = ctypes.CDLL(None, use_errno=True)
path, command = sys.argv[1], sys.argv[2:]


def mount(source, target, kind, flags, options):
    if LIBC.mount(source, target, kind, ctypes.c_ulong(flags), options) != 0:
        sys.exit(77)


def serve(fuse):
    attr = struct.pack('<6Q10I', 1, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFREG | 0o600, 1, 0, 0, 0, 4096, 0)
    answers = {
        INIT: struct.pack('<4I2H2I', 7, 31, 0, 0, 0, 0, 4096, 1).ljust(64, b'\0'),
        GETATTR: struct.pack('<QII', 0, 0, 0) + attr,
        OPEN: bytes(16),
    }
    while True:
        request = os.read(fuse, 1 << 17)
        _, operation, unique = struct.unpack_from('<IIQ', request)
        if operation in (STATFS, INTERRUPT):
            continue
        body = answers.get(operation)
        head = struct.pack('<IiQ', 16 + len(body or b''), 0 if body else -38, unique)
        os.write(fuse, head + (body or b''))


try:
    # Not 3, which the file will be.
    fuse = fcntl.fcntl(os.open('/dev/fuse', os.O_RDWR), fcntl.F_DUPFD_CLOEXEC, 10)
except OSError:
    sys.exit(77)
if LIBC.unshare(0x20000) != 0:
    sys.exit(77)
mount(None, b'/', None, 0x4000 | 0x40000, None)
mount(b'blocked', path.encode(), b'fuse', 6, b'fd=%d,rootmode=100000,user_id=0,group_id=0' % fuse)
threading.Thread(target=serve, args=(fuse,), daemon=True).start()
file = os.open(path, os.O_RDWR)
os.dup2(file, 3)
# Here, where the thread above can answer that there is no FLUSH, which ends this question. The child would ask it between vfork and exec,
# while this process waits with the interpreter's lock.
os.close(file)
child = subprocess.Popen(command, pass_fds=(3,))
try:
    code = child.wait(timeout=float(os.environ['PATIENCE']))
except subprocess.TimeoutExpired:
    print('blocked', flush=True)
    code = 1
# Its end ends the mount, and what waits for it.
os._exit(code)
