/** Options that several commands have. */
import { LINKS } from '@node-roce/link';
import { integer, type OptionSpec, oneOf, text } from '../options.ts';

/** For machines on which another program owns 4791; peers other than this program know 4791 only. */
export const udpPort: OptionSpec = {
  flags: '--udp-port <port>',
  summary: 'UDP port; the peer needs the same. rxe and network cards use 4791',
  parse: integer(1, 65_535),
  fallback: 4791,
};

const linkOf = (kinds: readonly (keyof typeof LINKS)[]): OptionSpec => ({
  flags: '--link <kind>',
  summary: `${kinds.map((kind) => `${kind} (${LINKS[kind].text})`).join(', ')}, or auto: udp if the addon is available, otherwise dgram`,
  parse: oneOf('auto', ...kinds),
  fallback: 'auto',
});
const kinds = Object.keys(LINKS) as (keyof typeof LINKS)[];

/** Of commands that open a device at an address of this machine. */
export const link = linkOf(kinds);

/** Of two adapters on one interface, the loopback: AF_XDP takes one program of each. */
export const linkOfPair = linkOf(kinds.filter((kind) => LINKS[kind].isShared));

/** For peers that count packets: nothing is sent but what `retry_cnt` allows. */
export const probes: OptionSpec = {
  flags: '--no-probes',
  summary: 'Send no tail loss probes: without an answer a peer sees 1 + retry_cnt transmissions, and no more',
};

/** The options with which the programs of libibverbs choose a device. */
export const ibvDevice: readonly OptionSpec[] = [
  {
    flags: '-d, --ib-dev <interface>',
    summary: 'Network interface to use as the device, as roce devinfo lists them',
    parse: text,
  },
  {
    flags: '-i, --ib-port <port>',
    summary: 'Port of the device; every device has port 1',
    parse: integer(1, 1),
  },
];

/** Of every command that opens devices. */
export const metrics: OptionSpec = {
  flags: '--metrics <port>',
  summary: 'Serve counters at http://127.0.0.1:PORT/metrics while it runs (OpenMetrics)',
  parse: integer(1, 65_535),
};
