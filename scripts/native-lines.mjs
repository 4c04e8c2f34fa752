// Prints the table of the native part of docs/architecture.md: each part of native/src, its lines, and why it is in C++.
// test/repo/architecture.test.ts compares the page with it.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const folder = fileURLToPath(new URL('../native/src', import.meta.url));

/** The parts: a pattern of their files' names, and the reason. The first pattern that fits counts. */
const PARTS = [
  [
    'AF_XDP: sockets, frames, routes, the filter on the interface',
    /^xdp_/,
    'rings in memory that is shared with the kernel; headers that no kernel has checked ([xdp.md](xdp.md))',
  ],
  [
    'UDP: sockets, batches, GSO and GRO, source ports, peers',
    /^(address|bound|local|peers|port|receive|rx_slots|send|send_messages|socket|transmit_pool|tx_slots|udp_socket)\./,
    'Node has no call for batches, for control messages (traffic class, hop limit, segment size), or for several sockets behind one event',
  ],
  [
    'ICRC, copies: CRC-32 by PCLMUL, Identifications',
    /^(checksums|copy|crc|crc_\w+|gf2|icrc|id_window|ordered_copy)\./,
    'the CRC of each packet in one pass with the copy; in JavaScript, the CRC alone would take several times as long as everything else',
  ],
  [
    'capture and raw frames: packet ring, filter, packet sockets',
    /^(capture|frame_socket|packet_filter|packet_ring)\./,
    '`AF_PACKET`, and its ring that is shared with the kernel',
  ],
  [
    'wake-ups, changes of interfaces',
    /^(callback|clock|interface_watcher|link_port|netlink|route_events|waker)\./,
    'one descriptor to sleep on (`epoll`, `eventfd`), rtnetlink',
  ],
  [
    'other processes: shared files, their memory, descriptors, doorbells, the scheduler',
    /^(descriptors|doorbells|local_socket|process_memory|processor|shared_file)\./,
    'Node has no `mmap`, `memfd_create`, `SCM_RIGHTS`, `futex` or `sched_setattr`',
  ],
  [
    'arguments, regions, features, layout',
    /^(addon|arguments|features|layout|network_order|old_glibc|regions|span|stats)\./,
    'every offset from JavaScript is checked once, at the border',
  ],
];

const linesOf = (file) => readFileSync(`${folder}/${file}`, 'utf8').split('\n').length - 1;

/** The parts with the lines of their files; files that belong to no part are `unknown`. */
export function nativeParts() {
  const lines = PARTS.map(() => 0);
  const unknown = [];
  for (const file of readdirSync(folder).filter((name) => /\.(cc|h)$/.test(name))) {
    const part = PARTS.findIndex(([, pattern]) => pattern.test(file));
    if (part < 0) unknown.push(file);
    else lines[part] += linesOf(file);
  }
  return { parts: PARTS.map(([name, , why], i) => ({ name, lines: lines[i], why })), unknown };
}

const rounded = (lines) => (Math.round(lines / 50) * 50).toLocaleString('en');

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { parts, unknown } = nativeParts();
  console.log('| part | lines | why in C++ |\n|---|---|---|');
  for (const { name, lines, why } of parts) console.log(`| ${name} | ${rounded(lines)} | ${why} |`);
  console.log(`| all | ${rounded(parts.reduce((sum, { lines }) => sum + lines, 0))} | |`);
  if (unknown.length > 0) console.error(`in no part: ${unknown.join(', ')}`);
  process.exitCode = unknown.length > 0 ? 1 : 0;
}
