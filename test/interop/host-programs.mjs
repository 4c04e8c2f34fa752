// Test files that run programs of this machine in the guest: only under User-Mode Linux, which sees this machine's file system.
import { fail, install } from './packages.mjs';

/** rxe's provider of libibverbs. */
const RXE = ['/etc/libibverbs.d/rxe.driver', 'ibverbs-providers'];

/**
 * File → what it needs: a program, or a file by its path, and the package that brings it.
 *
 * @type {Record<string, [string, string][]>}
 */
const NEEDED = {
  'programs-host.test.ts': [
    RXE,
    ['fi_pingpong', 'libfabric-bin'],
    ['ucx_perftest', 'ucx-utils'],
    ['/usr/include/ucp/api/ucp.h', 'libucx-dev'],
    ['mpirun', 'openmpi-bin'],
    ['/usr/lib/python3/dist-packages/mpi4py', 'python3-mpi4py'],
    ['c++', 'g++'],
    ['/usr/include/infiniband/verbs.h', 'libibverbs-dev'],
    ['/usr/include/gloo/transport/ibverbs/device.h', 'libgloo-dev'],
  ],
  'programs-storage.test.ts': [
    RXE,
    ['/usr/include/librpma.h', 'librpma-dev'],
    ['/usr/include/infiniband/verbs.h', 'libibverbs-dev'],
    ['tgtd', 'tgt'],
    ['qemu-img', 'qemu-utils'],
    // iser:// of qemu-img.
    ['/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so', 'qemu-block-extra'],
    ['fio', 'fio'],
  ],
};

export const HOST_PROGRAMS = Object.keys(NEEDED);

/**
 * Installs what is missing for those of these files that a run plays (root), or names it and ends the program.
 *
 * @param {string[]} filters arguments of vitest
 */
export function installHostPrograms(filters) {
  const words = filters.filter((word, i) => !word.startsWith('-') && filters[i - 1] !== '-t');
  const isPlayed = (file) => words.length === 0 || words.some((word) => file.includes(word));
  try {
    install(Object.entries(NEEDED).flatMap(([file, needed]) => (isPlayed(file) ? needed : [])));
  } catch (error) {
    fail(error.message);
  }
}
