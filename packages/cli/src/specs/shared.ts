/** Options that several commands have. */
import { LINKS } from '@node-roce/link/open-sockets';
import { integer, type OptionSpec, oneOf, text } from '../options.ts';

/** For machines on which another program owns 4791; peers other than this program know 4791 only. */
export const udpPort: OptionSpec = {
  flags: '--udp-port <port>',
  summary: 'UDP port of RoCE packets; both sides need the same. rxe and network cards use 4791',
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
  summary: 'Send no tail loss probes: a peer that does not answer gets exactly 1 + retry_cnt transmissions',
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

/** The address of this machine that a command uses. The same name in each command. */
export const bind = (summary: string, short?: string, old?: string): OptionSpec => ({
  flags: `${short === undefined ? '' : `-${short}, `}--bind <address>`,
  summary,
  parse: text,
  ...(old !== undefined && { old }),
});

/** Of every command that opens devices. */
export const metrics: OptionSpec = {
  flags: '--metrics <port>',
  summary: 'Serve counters at http://127.0.0.1:PORT/metrics while the command runs (OpenMetrics)',
  parse: integer(1, 65_535),
};
