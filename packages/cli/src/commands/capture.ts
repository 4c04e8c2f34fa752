/** `roce capture`: captures the RoCE frames of an interface, into a file or as a live table. */
import { PacketReader } from '@node-roce/capture';
import { linkTypeName } from '@node-roce/pcap';
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
import { Recorder } from '../capture/recorder.ts';
import { RingRecorder, type RingSize } from '../capture/ring.ts';
import { Trigger, type TriggerEvent } from '../capture/trigger.ts';
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
  ring?: RingSize;
  trigger?: readonly TriggerEvent[];
}

/** Seconds between two updates of the table. */
const INTERVAL = 1;

export async function run(_args: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const { write, json, snaplen, buffer, mirrors, hostOnly } = options;
  const name = checked(options);
  const cuts = snaplen < LONGEST_PACKET;
  const keepsAll = cuts && !options.cutAll && isVirtual(name);
  await using source = await InterfaceSource.open({
    interface: name,
    snapLength: keepsAll ? undefined : snaplen,
    wholeFrom: cuts && !options.cutAll ? LONGEST_PACKET : undefined,
    buffer,
    mirrors,
    promiscuous: !hostOnly,
  });
  if (keepsAll)
    terminal.message(
      `${name} shows super-packets of UDP segmentation offload, which can be split only whole: --snaplen is not applied (--cut-all does)`,
    );
  // Before anything is parsed or written: frames come from strangers, and the file shall be the user's.
  giveUpRoot(terminal.env);
  const shows = options.live || write === undefined;
  await using recorder = await recorderFor(options, source, terminal);
  terminal.message(
    `capturing ${FILTER}${mirrors ? ' and mirrors' : ''} on ${name} (${linkTypeName(source.info.linkType)})` +
      `${write === undefined ? '' : ` into ${recorder!.name}`}; Ctrl-C stops it`,
  );
  const table = new FlowTable();
  const reader = new PacketReader({
    icrc: shows || options.trigger?.includes('icrc') === true,
    crc32: (await import('@node-roce/dgram-native')).crc32,
    onPacket: (packet) => table.add(packet),
  });
  const trigger = options.trigger && new Trigger(options.trigger, table.total, reader);
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
      if (shows || json || trigger !== undefined) for (const record of taken) reader.frame(record);
      if (trigger?.happened() === true && recorder instanceof RingRecorder) recorder.keep();
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
function checked(options: Options): string {
  const { interface: name, write, live, json } = options;
  if (name === undefined)
    throw new UsageError(`capture needs -i <interface>; interfaces: ${interfaceNames().join(', ')}`);
  if (write === DASH && (live || json))
    throw new UsageError('-w - writes to standard output, and so do --live and --json');
  if (options.ring !== undefined && (write === undefined || write === DASH))
    throw new UsageError('--ring needs -w <file>: the names of its files begin with this name');
  if (options.trigger !== undefined && options.ring === undefined)
    throw new UsageError('--trigger needs --ring: it keeps files of the ring');
  return name;
}

/** The file that is written, or the ring of files; undefined for none. */
async function recorderFor(
  { write, ring }: Options,
  source: InterfaceSource,
  terminal: Terminal,
): Promise<Recorder | RingRecorder | undefined> {
  if (write === undefined) return undefined;
  return ring === undefined
    ? await Recorder.open(write, source, terminal)
    : await RingRecorder.open(write, ring, source, terminal);
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
