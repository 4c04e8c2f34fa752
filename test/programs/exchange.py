# Two ranks of MPI: messages there and back of sizes up to 1 MiB, then an allreduce.
from array import array
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, peer = comm.rank, 1 - comm.rank
for size in (1, 64, 4096, 65536, 1048576):
    sent = bytes((i * 7 + size) % 251 for i in range(size))
    got = bytearray(size)
    for turn in range(20):
        if rank == turn % 2:
            comm.Send([sent, MPI.BYTE], peer)
        else:
            comm.Recv([got, MPI.BYTE], peer)
            assert got == sent
sums = array('d', bytes(8 * 10000))
comm.Allreduce([array('d', [rank + i for i in range(10000)]), MPI.DOUBLE], [sums, MPI.DOUBLE])
assert all(sums[i] == 2 * i + 1 for i in range(10000))
print(f'rank {rank}: all as sent', flush=True)
