/** Commands about this machine and its interfaces. */
import { TRIGGER_EVENTS } from '../capture/trigger.ts';
import { integer, listOf, ring, seconds, text } from '../options.ts';
import { bind, ibvDevice } from './shared.ts';
import { type CommandSpec, json } from './spec.ts';

export const machineCommands: readonly CommandSpec[] = [
  {
    usage: 'capture',
    summary: 'Capture the RoCE packets of an interface, into a file or as a live table',
    description:
      'Records RoCE v2 packets (UDP port 4791) and v1 packets, with or without VLAN tags; a filter in the kernel selects them. Without -w, a table of ' +
      'the flows is shown each second (retx: requests whose PSN was seen before, which are retransmitted, late or duplicated; ' +
      'bad: wrong ICRCs; CE: marked by ECN); if stdout is not a terminal, one line with the totals. Ctrl-C ends the capture and leaves a valid file. ' +
      'Frames that the kernel dropped are counted. Needs the capability CAP_NET_RAW. A network card that does RoCE in ' +
      'hardware does not show its own packets to the kernel: capture at a mirror port.',
    options: [
      { flags: '-i, --interface <name>', summary: 'Network interface', parse: text },
      {
        flags: '-w, --write <file>',
        summary: 'Write pcapng into this file; - for standard output',
        parse: text,
      },
      {
        flags: '--ring <files>',
        summary:
          'Write a ring of files: 10x100M keeps the last ten files of 100 MiB each (trace-00001.pcapng …)',
        parse: ring,
      },
      {
        flags: '--trigger <events>',
        summary: `Keep the file in which such an event occurs, and the files before and after it; the ring removes all others: ${TRIGGER_EVENTS.join(',')}`,
        parse: listOf(...TRIGGER_EVENTS),
      },
      { flags: '--live', summary: 'Also show the table if -w writes a file' },
      {
        flags: '-c, --count <frames>',
        summary: 'Stop after this number of frames',
        parse: integer(1, Number.MAX_SAFE_INTEGER),
      },
      { flags: '-d, --duration <seconds>', summary: 'Stop after this time', parse: seconds },
      {
        flags: '-s, --snaplen <bytes>',
        summary:
          'Bytes to keep of each frame. 128 bytes hold all headers without tunnels, but not the ICRC of a packet with payload. Super-packets (GSO) are kept whole, and so are all frames of interfaces without hardware, such as lo and veth',
        parse: integer(64, 262_144),
        fallback: 262_144,
      },
      { flags: '--cut-all', summary: 'Also truncate super-packets; these then cannot be split into packets' },
      {
        flags: '--buffer <bytes>',
        summary: "Size of the kernel's buffer for waiting frames (K, M, G allowed)",
        parse: integer(2 ** 20, 2 ** 30),
        fallback: '64M',
      },
      { flags: '--mirrors', summary: 'Include ERSPAN (GRE) and VXLAN, as from a mirror port' },
      { flags: '--host-only', summary: 'Disable promiscuous mode: only frames from and to this machine' },
      json('Print JSON: one object each second instead of the table, and one at the end'),
    ],
    examples: [
      ['capture -i eth0', 'Show a table of the flows'],
      ['capture -i eth0 -w trace.pcapng --live', 'Show the table and write a file'],
      ['capture -i eth0 -w headers.pcapng -s 128 -d 60', 'Capture headers for a minute'],
      [
        'capture -i eth0 -w ring.pcapng --ring 10x100M --trigger nak,icrc',
        'Keep the packets around NAKs and damaged packets, in little space',
      ],
      ['capture -i eth0 -w - | wireshark -k -i -', 'Watch with Wireshark'],
    ],
    load: () => import('../commands/capture.ts'),
  },
  {
    usage: 'devinfo',
    summary: 'List the devices: interfaces with their GIDs, MTU and limits, and devices of roce run',
    description:
      'Lists each interface with an address: each can be a device. Then lists the running devices of roce device and roce run, with their ' +
      'programs and counters. No privilege is needed.',
    options: [
      { flags: '-v, --verbose', summary: 'Also print the limits, and counters that are 0' },
      {
        flags: '--socket <path>',
        summary: 'Show only the device at this Unix socket (default: all that roce run would find)',
        parse: text,
      },
      ...ibvDevice,
      json('Print one JSON object'),
    ],
    examples: [
      ['devinfo', 'List the devices'],
      ['devinfo -d eth0 -v', 'Show one device with its limits'],
      ['devinfo --json', 'Print JSON'],
    ],
    load: () => import('../commands/devinfo.ts'),
  },
  {
    usage: 'doctor [peer]',
    summary: 'Check this machine for software RoCE, and the route to a peer',
    description:
      'Checks what software RoCE needs. Each check reports ok, warn or fail, with a remedy. The command changes nothing on the machine, except with --xdp. It sends one ' +
      'empty UDP datagram to port 4791 of the peer. The exit code is 1 if a check fails.',
    options: [
      bind('Local address to check (default: that of the route to the peer)'),
      {
        flags: '--xdp',
        summary: 'Also open the address by AF_XDP, which puts an XDP program on its interface for a moment',
      },
      json('Print one JSON object'),
    ],
    examples: [
      ['doctor', 'Check this machine'],
      [
        'doctor --xdp --bind 10.0.0.1',
        'Show the mode of AF_XDP that an interface supports, or why none works',
      ],
      ['doctor 10.0.0.7', 'Check the route to a peer, too'],
    ],
    load: () => import('../commands/doctor.ts'),
  },
];
