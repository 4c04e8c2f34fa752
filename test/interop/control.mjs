// The cases of `--sample control`: one of each kind, for a kernel that is emulated. File, and name as vitest has it.

import { fileURLToPath } from 'node:url';

/** @type {Record<string, string[]>} */
const CASES = {
  rig: [
    'guest kernel, rdma-core and perftest are those of its release',
    'guest netem: faults on RoCE packets both ways, and none afterwards',
    'rverbs SEND with lists and immediate, WRITE, READ',
  ],
  data: [
    'IPv6, path MTU 4096 1048577 bytes, unaligned, lists of three, both roles',
    'atomics both ways, the PSN wrapping around',
    '16 READs at a time we READ from rxe',
    '16 READs at a time rxe READs from us',
  ],
  'zero-length': ['RDMA_WRITE_WITH_IMM both ways, without memory, to an unknown address and key'],
  errors: [
    "'READ with a bad rkey' ours to rxe: REM_ACCESS_ERR here, flush, both queue pairs in ERR",
    "'WRITE out of bounds' rxe to us: NAK 0x62 at its PSN, REM_ACCESS_ERR there, flush here",
    'receive missing, then posted: rxe waits for the time in our RNR NAK',
    'a message longer than our receive: NAK 0x61 as the specification has it, LOC_LEN_ERR here',
  ],
  windows: [
    'a window of ours, used by rxe WRITE past its end',
    'a window of rxe, used by us type 2: WRITE and READ through it',
  ],
  srq: [
    'an SRQ of ours, queue pairs of rxe sending empty: RNR NAK, and the message arrives once there is a receive',
    'an SRQ of rxe, queue pairs of ours sending three queue pairs at once: each message in one receive, whole',
  ],
  unreliable: ['IPv4 20001 bytes by each operation, both ways, PSNs that wrap'],
  'unreliable-loss': [
    "rxe to us, netem on its packets: loss 10% 'SEND_WITH_IMM', 'receive queue': exactly the messages that arrived whole, in order",
  ],
  datagrams: [
    'IPv6 1023 bytes, immediate data undefined, both ways: payload, completion, and the IP header before it',
  ],
  multicast: ['IPv4 from us: every member in rxe gets a copy, until it leaves'],
  quirks: ['windowBoundsNotChecked'],
  placement: [
    'ours to rxe ATOMIC_WRITE: the eight bytes arrive, and no others',
    'rxe to ours ATOMIC_WRITE: the eight bytes arrive, and no others',
    "ours to rxe FLUSH of 'a range': answered, after the WRITE before it",
    'flushIsCoveredTwice rxe drops a FLUSH with a right ICRC',
  ],
  'cm-rping': ["'rping -v -V': we are the 'client', IPv6", "'rping -P': we are the 'server', IPv4"],
  'cm-tools': ["'ucmatose': we are the 'server', IPv4", "'rdma_xserver': we are the 'client', IPv4"],
  'cm-datagrams': ["'udaddy': we are the 'client', IPv6", 'mckey receives our datagrams to a group'],
  pingpong: [
    "IPv6, we are the 'client', path MTU 1024, 20001 bytes, events true messages go both ways, every ICRC right, no counter of trouble moves",
  ],
  'pingpong-services': [
    "'uc', IPv4, we are the 'server': 65537 bytes, events undefined messages go both ways, every ICRC right, no counter of trouble moves",
    "'ud', IPv6, we are the 'client': 4096 bytes, events undefined messages go both ways, every ICRC right, no counter of trouble moves",
    "'srq', IPv4, we are the 'client': 20001 bytes, events true messages go both ways, every ICRC right, no counter of trouble moves",
  ],
  perftest: [
    'ib_write_bw -c RC -R -n 500 -q 4 -s 8192, GIDs of IPv4, dialogue over IPv4: we are the client both end well, and their reports agree',
    'ib_send_bw -c UD -n 500 -q 1 -s 1024 -t 8, GIDs of IPv4, dialogue over IPv4: we are the server both end well, and their reports agree',
    'ib_read_lat -c RC -n 200, GIDs of IPv6, dialogue over IPv4: we are the server both end well, and their reports agree',
    'ib_atomic_lat -c RC -n 500 -A CMP_AND_SWAP, GIDs of IPv4, dialogue over IPv4: we are the client both end well, and their reports agree',
  ],
  'perftest-peer': ["the peer as 'server': 'write' 'bw' undefined"],
  programs: [
    'our program is the client ibv_rc_pingpong -c -n 50',
    'our program is the server ib_write_bw -s 65536 -n 20',
  ],
  faults: [
    "netem on rxe's packets: sent 'corrupt 8%', received 'corrupt 8%' SEND, READ and its WRITE arrive byte for byte",
    "ibv_rc_pingpong over loss of 5 percent each way, we are the 'client' path MTU 4096",
  ],
  counters: ['SEND, WRITE, READ and atomics both ways: one side received what the other sent'],
  dgram: ['IPv6: a WRITE over dgram arrives at rxe: true; its ACK never comes'],
  soak: ['the engine in a worker, through the same API: SEND, WRITE, READ with rxe'],
  'ibverbs-example': ['we are the client'],
};

/** Of rxe in Linux 6.12 alone. */
const ONLY_DEBIAN13 = ['placement'];

/** The cases that a guest plays: file and name. */
export const controlCases = (guest) =>
  Object.entries(CASES)
    .filter(([file]) => guest === 'debian13' || !ONLY_DEBIAN13.includes(file))
    .flatMap(([file, names]) => names.map((name) => ({ file: `${file}.test.ts`, name })));

/** Arguments of vitest for them. */
export function controlFilters(guest) {
  const cases = controlCases(guest);
  const pattern = cases.map(({ name }) => name.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&')).join('|');
  const files = cases.map(({ file }) => fileURLToPath(new URL(file, import.meta.url)));
  return [...new Set(files), '--hideSkippedTests', '-t', `^(?:${pattern})$`];
}
