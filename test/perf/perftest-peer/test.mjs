// The description of a test, with perftest's defaults.

const SIZE = {
  bw: { send: 65536, write: 65536, read: 65536, atomic: 8 },
  lat: { send: 2, write: 2, read: 2, atomic: 8 },
};
/** Largest size of `-a`: 8 MiB. */
const ALL = 1 << 23;

/**
 * Fills absent members.
 *
 * version: the one that this side sends; mlx5: the structure of a build with mlx5dv; role: 'server' or 'client';
 * verb: send, write, read, atomic; kind: bw, lat; connection: RC, UC, UD; all: sizes 2 … 8 MiB (`-a`);
 * seconds: a test of so many seconds (`-D`), margin: those left out at each end (`-f`); duplex: `-b`;
 * immediate: `--write_with_imm`; cm: `-R`; gbits: `--report_gbits`; mtu: bytes, at most;
 * maxRdAtomic: READs and atomics at once; stack: the byte in what perftest sends without having written it; patience: ms without progress until the data phase has failed
 */
export function testOf(given) {
  const { verb, kind } = given;
  const iters = given.iters ?? (verb === 'write' && kind === 'bw' ? 5000 : 1000);
  return {
    version: '6.29',
    ...{ mlx5: false, role: 'server', connection: 'RC', qps: 1, atomic: 'FETCH_AND_ADD' },
    ...{ all: false, seconds: 0, margin: 0.2, duplex: false, immediate: false, cm: false, gbits: false },
    ...{ mtu: 1024, maxRdAtomic: 16, stack: 0, patience: 20_000, depth: 128, cycle: 4096, line: 64 },
    ...given,
    iters,
    size: given.all ? ALL : (given.size ?? SIZE[kind][verb]),
  };
}

/** The sizes that a run of the test goes through. Datagrams end at the path MTU. */
export function sizesOf(test, mtu) {
  if (!test.all) return [test.size];
  const largest = test.connection === 'UD' ? mtu : ALL;
  const sizes = [];
  for (let size = 2; size <= largest; size *= 2) sizes.push(size);
  return sizes;
}
