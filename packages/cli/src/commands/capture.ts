/** `roce capture`: captures the RoCE frames of an interface, into a file or as a live table. */
import { PacketReader } from '@node-roce/capture';
import { LinkType, linkTypeName, PcapngEncoder } from '@node-roce/pcap';
import { CaptureWriter, createCaptureFile } from '@node-roce/pcap/node';
import { FlowTable } from '../capture/flow-counts.ts';
import {
  FILTER,
  InterfaceSource,
  interfaceNames,
  isVirtual,
  LONGEST_PACKET,
} from '../capture/interface-source.ts';
import { LiveView } from '../capture/live-view.ts';
import { giveUpRoot } from '../capture/privileges.ts';
import { DASH, UsageError } from '../options.ts';
import type { Terminal } from '../terminal.ts';

interface Options {
  interface?: string;
  write?: string;
  live: boolean;
  json: boolean;
  count?: number;
  /** Seconds. */
  duration?: number;
  snaplen: number;
  buffer: number;
  hostOnly: boolean;
  cutAll: boolean;
  mirrors: boolean;
}

/** Seconds between two updates of the table. */
const INTERVAL = 1;

export async function run(_args: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const { write, json, snaplen, buffer, mirrors, hostOnly } = options;
  const name = checked(options);
  const cuts = snaplen < LONGEST_PACKET;
  const keepsAll = cuts && !options.cutAll && isVirtual(name);
  if (keepsAll)
    terminal.message(
      `${name} shows super-packets of UDP segmentation offload, which can be split only whole: --snaplen is not applied (--cut-all does)`,
    );
  await using source = await InterfaceSource.open({
    interface: name,
    snapLength: keepsAll ? undefined : snaplen,
    wholeFrom: cuts && !options.cutAll ? LONGEST_PACKET : undefined,
    buffer,
    mirrors,
    promiscuous: !hostOnly,
  });
  // Before anything is parsed or written: frames come from strangers, and the file shall be the user's.
  giveUpRoot(terminal.env);
  const shows = options.live || write === undefined;
  await using recorder = write === undefined ? undefined : await Recorder.open(write, source, terminal);
  terminal.message(
    `capturing ${FILTER}${mirrors ? ' and mirrors' : ''} on ${name} (${linkTypeName(source.info.linkType)})` +
      `${write === undefined ? '' : ` into ${recorder!.name}`}; Ctrl-C stops it`,
  );
  const table = new FlowTable();
  const reader = new PacketReader({
    icrc: shows,
    crc32: (await import('@node-roce/dgram-native')).crc32,
    onPacket: (packet) => table.add(packet),
  });
  const view = new LiveView(table, reader.addresses, terminal, json);
  const start = performance.now();
  const state = () => ({
    seconds: (performance.now() - start) / 1000,
    dropped: source.stats().dropped,
    pauseFrames: reader.pauseFrames,
  });
  const timer = shows ? setInterval(() => view.show(state()), INTERVAL * 1000) : undefined;
  const end = new AbortController();
  const disarm = endBy(options, terminal, end);
  let frames = 0;
  let failure: unknown;
  try {
    for await (const batch of source.batches(end.signal)) {
      const room = (options.count ?? Number.POSITIVE_INFINITY) - frames;
      const taken = room < batch.length ? batch.slice(0, room) : batch;
      frames += taken.length;
      // Without a table to show, the time is better spent on keeping up.
      if (shows || json) for (const record of taken) reader.frame(record);
      await recorder?.write(taken);
      if (frames === options.count) break;
    }
  } catch (error) {
    failure = error;
  } finally {
    clearInterval(timer);
    disarm();
  }
  await recorder?.close();
  const { received, dropped } = source.stats();
  const ended = state();
  if (json) {
    const totals = { interface: name, frames, received, ...(write === undefined ? {} : { file: write }) };
    terminal.json({ type: 'summary', ...totals, ...view.toJson(ended), dropped });
  } else if (shows) view.end(ended);
  terminal.message(summaryOf(name, frames, dropped, ended.seconds, recorder?.name));
  if (failure !== undefined && !isGone(failure)) throw failure;
  return 0;
}

/** The interface's name. */
function checked({ interface: name, write, live, json }: Options): string {
  if (name === undefined)
    throw new UsageError(`capture needs -i <interface>; interfaces: ${interfaceNames().join(', ')}`);
  if (write === DASH && (live || json))
    throw new UsageError('-w - writes to standard output, and so do --live and --json');
  return name;
}

/** Aborts `end` at Ctrl-C, without a reader of the output, or after the duration; returns a function that undoes it. */
function endBy({ duration }: Options, terminal: Terminal, end: AbortController): () => void {
  const { signal } = terminal;
  const abort = () => end.abort();
  terminal.whenUnread(abort);
  signal.addEventListener('abort', abort);
  if (signal.aborted) abort();
  const timer = duration === undefined ? undefined : setTimeout(abort, duration * 1000);
  return () => {
    signal.removeEventListener('abort', abort);
    clearTimeout(timer);
  };
}

/** A closed reader of `-w -` ends the capture; it is not an error. */
const isGone = (error: unknown) => (error as NodeJS.ErrnoException).code === 'EPIPE';

function summaryOf(name: string, frames: number, dropped: number, seconds: number, file?: string): string {
  const into = file === undefined ? '' : `, written to ${file}`;
  const lost = dropped === 0 ? 'none dropped' : `${dropped} dropped: raise --buffer or lower --snaplen`;
  return `${frames} frame${frames === 1 ? '' : 's'} captured on ${name} in ${seconds.toFixed(1)} s, ${lost}${into}`;
}

type Batch = Parameters<CaptureWriter['write']>[0][];

/** The file: pcapng, with the kernel's counts at its end. */
class Recorder implements AsyncDisposable {
  readonly name: string;
  readonly #source: InterfaceSource;
  readonly #writer: CaptureWriter<PcapngEncoder>;
  readonly #start = now();
  #closed = false;

  static async open(path: string, source: InterfaceSource, terminal: Terminal): Promise<Recorder> {
    const { linkType, snapLength, name } = source.info;
    // The kernel cuts before a VLAN tag is put back.
    const tag = linkType === LinkType.ETHERNET ? 4 : 0;
    const described = { linkType, snapLength: snapLength + tag, name, filter: FILTER };
    const options = { application: 'node-roce', os: `${process.platform} ${process.arch}` };
    if (path !== DASH) {
      return new Recorder(
        path,
        source,
        await createCaptureFile(path, { ...options, interfaces: [described] }),
      );
    }
    const encoder = new PcapngEncoder(options);
    encoder.interface(described);
    return new Recorder('standard output', source, new CaptureWriter(terminal.binary(), encoder));
  }

  private constructor(name: string, source: InterfaceSource, writer: CaptureWriter<PcapngEncoder>) {
    this.name = name;
    this.#source = source;
    this.#writer = writer;
  }

  /** Resolves when the file takes more: meanwhile frames wait in the kernel's ring. */
  async write(batch: Batch): Promise<void> {
    let keepsUp = true;
    for (const record of batch) keepsUp = this.#writer.write(record) && keepsUp;
    if (!keepsUp) await this.#writer.drain();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const { received, dropped } = this.#source.stats();
    const timestamp = now();
    this.#writer.encoder.statistics(0, {
      timestamp,
      startTime: this.#start,
      endTime: timestamp,
      filterAccepted: received,
      osDropped: dropped,
      delivered: received - dropped,
    });
    await this.#writer.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

const now = (): bigint => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n;
