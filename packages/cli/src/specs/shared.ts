/** Options that several commands have. */
import { integer, type OptionSpec, text } from '../options.ts';

/** For machines on which another program owns 4791; peers other than this program know 4791 only. */
export const udpPort: OptionSpec = {
  flags: '--udp-port <port>',
  summary: 'UDP port; the peer needs the same. rxe and network cards use 4791',
  parse: integer(1, 65_535),
  fallback: 4791,
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
