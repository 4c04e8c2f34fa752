/** Commands that open adapters and move data. */
import { integer, type OptionSpec, oneOf, percent, seconds, text } from '../options.ts';
import { bind, ibvDevice, link, linkOfPair, udpPort } from './shared.ts';
import { type CommandSpec, json } from './spec.ts';

/** Of rping and ping: the port of an rping server. */
const connectionPort: OptionSpec = {
  flags: '-p, --port <port>',
  summary: 'Port of the server (rdma_cm port space TCP)',
  parse: integer(1, 65_535),
  fallback: 7174,
};

export const adapterCommands: readonly CommandSpec[] = [
  {
    usage: 'demo',
    summary: 'Exchange messages between two adapters on loopback: a quick tour',
    description:
      'Opens two adapters on loopback addresses, connects a queue pair on each, moves data by SEND, RDMA WRITE and ' +
      'RDMA READ, and compares the SHA-256 of source and destination. Repeats it over a link that loses packets. Writes ' +
      'every packet of one message of each kind into a capture. Needs neither root nor a network card; without the ' +
      'native addon it runs over node:dgram.',
    options: [
      { flags: '--a <address>', summary: 'Address of the first adapter', parse: text, fallback: '127.0.0.1' },
      {
        flags: '--b <address>',
        summary: 'Address of the second adapter',
        parse: text,
        fallback: '127.0.0.2',
      },
      {
        flags: '--size <bytes>',
        summary: 'Bytes that each operation moves (K, M, G allowed)',
        parse: integer(1, 2 ** 30),
        fallback: '16M',
      },
      {
        flags: '--loss <percent>',
        summary: 'Packet loss per direction in the second run (0 skips it)',
        parse: percent,
        fallback: 1,
      },
      {
        flags: '--seed <number>',
        summary: 'Seed that selects the lost packets',
        parse: integer(0, 2 ** 32 - 1),
        fallback: 1,
      },
      linkOfPair,
      { flags: '--trace <file>', summary: 'Capture to write', parse: text, fallback: 'demo.pcapng' },
      udpPort,
      json('Print one JSON object'),
    ],
    examples: [
      ['demo', 'Run everything with its defaults'],
      ['demo --a 127.0.0.3 --b 127.0.0.4', 'Use other addresses if UDP port 4791 of the first ones is taken'],
      ['demo --loss 5 --seed 7', 'Lose more packets, chosen by another seed'],
      ['demo --link dgram', 'Run without the native addon'],
      ['dump demo.pcapng | head', 'Show the packets of the last demo'],
    ],
    opensDevices: true,
    load: () => import('../commands/demo.ts'),
  },
  {
    usage: 'pingpong [host]',
    summary: 'Exchange messages with ibv_rc_pingpong, its uc, ud and srq variants, or roce pingpong',
    description:
      'Compatible with ibv_rc_pingpong; with --type uc or ud with ibv_uc_pingpong or ibv_ud_pingpong; with --srq with ' +
      'ibv_srq_pingpong. Without a host, the command waits for a client; with a host, it connects to the server there. ' +
      'Both sides need the same --mtu, --size and --iters, and with --srq the same --num-qp.',
    options: [
      {
        flags: '-t, --type <service>',
        summary: 'rc (reliable connection), uc (unreliable connection) or ud (datagrams)',
        parse: oneOf('rc', 'uc', 'ud'),
        fallback: 'rc',
      },
      { flags: '--srq', summary: 'Use several queue pairs with one shared receive queue' },
      {
        flags: '-q, --num-qp <count>',
        summary: 'Queue pairs with --srq (default: 16)',
        parse: integer(1, 256),
      },
      {
        flags: '-p, --port <port>',
        summary: 'TCP port over which both sides exchange their addresses',
        parse: integer(1, 65_535),
        fallback: 18_515,
      },
      {
        flags: '-s, --size <bytes>',
        summary: 'Size of a message, K, M, G allowed (default: 4096; 2048 with --type ud)',
        parse: integer(1, 2 ** 30),
      },
      {
        flags: '-n, --iters <count>',
        summary: 'Messages each way',
        parse: integer(1, 2 ** 31 - 1),
        fallback: 1000,
      },
      {
        flags: '-m, --mtu <bytes>',
        summary: 'Path MTU; datagrams use the MTU of the port',
        parse: oneOf(256, 512, 1024, 2048, 4096),
        fallback: 1024,
      },
      {
        flags: '-r, --rx-depth <count>',
        summary: 'Receives to post at once',
        parse: integer(1, 32_768),
        fallback: 500,
      },
      { flags: '-e, --events', summary: 'Sleep until a completion event instead of polling' },
      { flags: '-c, --check', summary: 'Validate received data: the server echoes, the client compares' },
      ...ibvDevice,
      {
        flags: '-g, --gid-idx <index>',
        summary: 'Index of the local GID on that interface, as roce devinfo lists them',
        parse: integer(0, 255),
      },
      bind('Local address (GID) to use (default: that of the route to the peer)'),
      {
        flags: '--timeout <seconds>',
        summary:
          'Give up if the peer sends nothing for this long; a server waits for its client without limit',
        parse: seconds,
        fallback: 30,
      },
      link,
      udpPort,
      json('Print one JSON object'),
    ],
    examples: [
      ['pingpong', 'Wait for a client, for example: ibv_rc_pingpong -g 1 HOST'],
      ['pingpong 10.0.0.7', 'Connect to a server at 10.0.0.7, for example: ibv_rc_pingpong -g 1'],
      ['pingpong --mtu 4096 --size 1M --iters 100 fd00::7', 'Send large messages over IPv6'],
      ['pingpong --link xdp 10.0.0.7', 'Use AF_XDP, or fail with the missing requirement'],
      [
        'pingpong --type ud --size 1024 10.0.0.7',
        'Datagrams, for example with: ibv_ud_pingpong -g 1 -s 1024',
      ],
      ['pingpong --srq -q 4 10.0.0.7', 'Four queue pairs, for example with: ibv_srq_pingpong -g 1 -q 4'],
      [
        'pingpong --bind 127.0.0.2 & roce pingpong --bind 127.0.0.1 127.0.0.2',
        'Run both ends on one machine',
      ],
    ],
    opensDevices: true,
    load: () => import('../commands/pingpong.ts'),
  },
  {
    usage: 'rping',
    summary: 'Ping by RDMA READ and WRITE, with rping or roce rping on the other side',
    description:
      "Compatible with rdma-core's rping, and with its options. In each ping the server reads the client's text by RDMA READ, and " +
      'writes it back by RDMA WRITE. -c makes this side the client, -s the server.',
    options: [
      { flags: '-s, --server', summary: 'Wait for a client' },
      { flags: '-c, --client', summary: 'Connect to a server' },
      {
        flags: '-a, --address <address>',
        summary: 'Address of the server; as the server, the address to listen at',
        parse: text,
      },
      bind('Local address of a client (default: that of the route to the server)', 'I', '--source'),
      connectionPort,
      {
        flags: '-C, --count <count>',
        summary: 'Pings (default: until interrupted)',
        parse: integer(1, 2 ** 31 - 1),
      },
      { flags: '-S, --size <bytes>', summary: 'Size of a ping', parse: integer(18, 65_535), fallback: 64 },
      { flags: '-v, --verbose', summary: 'Print the data of each ping' },
      { flags: '-V, --validate', summary: 'Compare the returned data with the sent data' },
      { flags: '-P, --persistent', summary: 'Serve several clients, until interrupted' },
      link,
      udpPort,
    ],
    examples: [
      ['rping -s -a 10.0.0.1', 'Wait for a client, for example: rping -c -a 10.0.0.1 -C 5 -v'],
      ['rping -c -a 10.0.0.7 -C 5 -v -V', 'Connect to a server, for example: rping -s'],
    ],
    opensDevices: true,
    load: () => import('../commands/rping.ts'),
  },
  {
    usage: 'ping <host>',
    summary: 'Measure round trips over a reliable connection to an rping server',
    description:
      'Connects to rping -s or roce rping -s. In each round trip, the server reads the text by RDMA READ and writes it back by RDMA ' +
      'WRITE; four messages announce this. Prints statistics as ping does.',
    options: [
      connectionPort,
      {
        flags: '-c, --count <count>',
        summary: 'Pings (default: until interrupted)',
        parse: integer(1, 2 ** 31 - 1),
      },
      { flags: '-s, --size <bytes>', summary: 'Size of a ping', parse: integer(18, 65_535), fallback: 64 },
      { flags: '-i, --interval <seconds>', summary: 'Time between pings', parse: seconds, fallback: 1 },
      {
        flags: '--timeout <seconds>',
        summary: 'Give up if the server has not accepted the connection after this time',
        parse: seconds,
        fallback: 10,
      },
      bind('Local address to use (default: that of the route to the server)', 'I', '--source'),
      link,
      udpPort,
      json('Print one JSON object at the end'),
    ],
    examples: [
      ['ping 10.0.0.7', 'Ping a server, for example: rping -s -P'],
      ['ping -c 100 -i 0.01 -s 4096 10.0.0.7', 'A hundred large pings; the server needs -S 4096'],
    ],
    opensDevices: true,
    load: () => import('../commands/ping.ts'),
  },
];
