/** Counts of devices as text for Prometheus, or whatever else reads OpenMetrics 1.0 (docs/counters.md has the names). */
import type { AdapterCounts } from '@node-roce/transport';
import { Device, openDevices } from './device.ts';
import { checkArgument, type OptionType } from './options.ts';

/** Content-Type of an HTTP answer with this text. */
export const OPEN_METRICS_TYPE = 'application/openmetrics-text; version=1.0.0; charset=utf-8';

/** The meaning of each count, in the words of docs/counters.md where they fit one line. */
const COUNTS: Record<keyof AdapterCounts, string> = {
  sentPackets: 'Packets given to the link',
  sendErrors: 'Packets that the link could not send',
  receivedPackets: 'Packets that the link brought',
  acceptedPackets: 'Packets that queue pairs took',
  ecnMarked: 'Packets that came with Congestion Experienced',
  cnpReceived: 'Congestion notification packets received',
  cnpHandled: 'Congestion notification packets that the rate obeyed',
  cnpSent: 'Congestion notification packets sent',
  sentMessages: 'Requests that completed with SUCCESS',
  completedSends: 'SENDs that completed with SUCCESS',
  failedSends: 'Requests that completed with an error of their own',
  flushedSends: 'Requests that were flushed',
  retransmittedPackets: 'Retransmitted request packets',
  timeouts: 'Times that the local ACK timer ran out',
  receivedSeqErr: 'Sequence NAKs (0x60) received',
  sequenceNakRetries: 'Sequence NAKs received that a retry was left for',
  impliedNakSeqErr: 'Responses past one that is missing',
  receivedRnrErr: 'RNR NAKs received',
  retries: 'Retries taken of retry_cnt',
  retryExceededErr: 'Connections that ended with RETRY_EXC_ERR',
  rnrRetryExceededErr: 'Connections that ended with RNR_RETRY_EXC_ERR',
  probes: 'Tail loss probes sent',
  receivedInvalidRequest: 'NAKs 0x61 (invalid request) received',
  receivedAccessErr: 'NAKs 0x62 (remote access error) received',
  receivedOperationalErr: 'NAKs 0x63 (remote operational error) received',
  receivedMessages: 'Messages taken in',
  completedReceives: 'Receives that completed with SUCCESS',
  failedReceives: 'Receives that completed with an error of their own',
  shortReceives: 'Receives that were too small',
  flushedReceives: 'Receives that were flushed',
  writeRequests: 'RDMA WRITEs begun',
  readRequests: 'RDMA READs executed',
  atomicRequests: 'Atomics executed',
  flushRequests: 'FLUSHes executed',
  atomicWriteRequests: 'ATOMIC_WRITEs executed',
  duplicateRequest: 'Request packets from before the expected PSN',
  outOfSeqRequest: 'Request packets from beyond the expected PSN',
  keptPackets: 'Early request packets kept until their turn came',
  sentRnrErr: 'RNR NAKs sent',
  sentInvalidRequest: 'NAKs 0x61 (invalid request) sent',
  sentAccessErr: 'NAKs 0x62 (remote access error) sent',
  sentOperationalErr: 'NAKs 0x63 (remote operational error) sent',
  droppedMessages: 'UC messages lost before their end',
  droppedPackets: 'UC and UD packets dropped',
  outOfBuffer: 'UC and UD messages for which no receive was posted',
  qkeyViolations: 'Datagrams with a wrong Q_Key',
  icrcErrors: 'Packets with a wrong ICRC',
  icrcOutOfWindow: 'Packets whose ICRC is right for an IPv4 Identification outside of the window only',
  malformed: 'Packets that are no RoCE packets',
  unknownQp: 'Packets for no queue pair',
  wrongState: 'Packets for a queue pair whose state takes none',
  wrongSource: 'Packets from another address than that of the connection',
  badPkey: 'Packets with another P_Key',
  staleResponses: 'Responses to requests that are not outstanding',
  bugs: 'Broken invariants of the engine itself',
};

const ITERABLE: OptionType = {
  expected: 'a list, or another iterable, of devices that openDevice returned',
  is: (value) => typeof value === 'object' && value !== null && Symbol.iterator in value,
};
const DEVICE: OptionType = { ...ITERABLE, is: (value) => value instanceof Device };

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

type Labels = Readonly<Record<string, string | number>>;

const escaped = (value: string | number): string =>
  String(value).replace(/[\\"\n]/g, (c) => (c === '\n' ? '\\n' : `\\${c}`));

/** One metric family: its type and help once, then a line for each sample. OpenMetrics wants the samples of a family together. */
class Family {
  readonly #lines: string[];
  readonly #sample: string;

  constructor(name: string, type: 'counter' | 'gauge' | 'info' | 'unknown', help: string) {
    this.#lines = [`# TYPE ${name} ${type}`, `# HELP ${name} ${help}`];
    this.#sample = { counter: `${name}_total`, info: `${name}_info`, gauge: name, unknown: name }[type];
  }

  add(labels: Labels, value: number): void {
    const text = Object.entries(labels).map(([name, label]) => `${name}="${escaped(label)}"`);
    this.#lines.push(`${this.#sample}{${text}} ${value}`);
  }

  toString(): string {
    return this.#lines.join('\n');
  }
}

/** The numbers of one device, by all its contexts, at one moment; undefined if it was closed meanwhile. */
async function read(contexts: readonly Device[]) {
  const [device] = contexts;
  try {
    const counters = await device.counters();
    const queuePairs = contexts.reduce((sum, context) => sum + context.queuePairs, 0);
    return { labels: { device: device.number }, device, queuePairs, counters };
  } catch {
    return undefined;
  }
}

/**
 * Counts of these devices in the text format of OpenMetrics 1.0, to be answered to a scrape with OPEN_METRICS_TYPE. Devices that are
 * closed are left out; contexts of one device (`openContext`) are reported as one.
 *
 * Each sample has the label `device`, the device's number in this process, from 0 in the order of opening; `roce_device_info` has its
 * addresses and link.
 *
 * @param devices without it, all that are open in this thread
 * @throws RoceError (EINVAL) if it is no iterable of devices
 */
export async function openMetrics(devices: Iterable<Device> = openDevices): Promise<string> {
  checkArgument('devices', devices, ITERABLE);
  const byNumber = new Map<number, Device[]>();
  for (const context of devices) {
    checkArgument('devices', context, DEVICE);
    byNumber.set(context.number, [...(byNumber.get(context.number) ?? []), context]);
  }
  const readings = (await Promise.all([...byNumber.values()].map(read))).filter(
    (reading) => reading !== undefined,
  );

  const info = new Family('roce_device', 'info', 'An open device');
  const qps = new Family('roce_queue_pairs', 'gauge', 'Queue pairs that there are');
  const link = new Family('roce_link', 'unknown', 'Counters of the link, by its names');
  const downs = new Family('roce_link_downs', 'counter', 'Times that the interface went down');
  for (const { labels, device, queuePairs, counters } of readings) {
    const address = device.gids.map((gid) => gid.address).join(' ');
    info.add({ ...labels, address, link: device.facts.link }, 1);
    qps.add(labels, queuePairs);
    for (const [count, value] of Object.entries(counters.link)) link.add({ ...labels, count }, value);
    downs.add(labels, counters.rxe.link_downed);
  }
  const counts = Object.entries(COUNTS) as [keyof AdapterCounts, string][];
  const families = counts.map(([count, help]) => {
    const family = new Family(`roce_${snake(count)}`, 'counter', help);
    for (const { labels, counters } of readings) family.add(labels, counters[count]);
    return family;
  });
  return `${[info, qps, downs, ...families, link].join('\n')}\n# EOF\n`;
}
