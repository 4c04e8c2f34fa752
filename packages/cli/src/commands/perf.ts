/** `roce perf`: the peer of perftest's programs. */
import { randomUUID } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { lstatSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { isIP } from 'node:net';
import {
  type AtomicType,
  type ClientVersion,
  callPerf,
  localPerf,
  type Measure,
  outJson,
  type PerfOptions,
  type PerfResult,
  planOf,
  type Service,
  type SideOptions,
  servePerf,
  table,
  type Verb,
} from '@node-roce/perf';
import { RoceError } from '@node-roce/verbs-api';
import { parseIpAddress } from '@node-roce/wire';
import { Option } from 'commander';
import { type LinkChoice, openOptions, recoveryOptions } from '../link-choice.ts';
import { UsageError } from '../options.ts';
import { type Interval, Intervals, intervalLine } from '../perf-intervals.ts';
import { checkChoice, type DeviceChoice, fixedAddress, localAddress } from '../pingpong/local-address.ts';
import { sourceFor } from '../route.ts';
import { REFUSED } from '../specs/perf-refused.ts';
import type { Terminal } from '../terminal.ts';

/** The options as the command line has them, under perftest's long names. */
interface Given {
  size?: number;
  all?: boolean;
  iters?: number;
  duration?: number;
  margin?: number;
  qp: number;
  bidirectional?: boolean;
  mtu?: number;
  inline_size?: number;
  connection: Service;
  txDepth?: number;
  rxDepth?: number;
  cqMod?: number;
  outs?: number;
  atomic_type?: AtomicType;
  events?: boolean;
  noPeak?: boolean;
  sl: number;
  tclass: number;
  qpTimeout: number;
  write_with_imm?: boolean;
  perform_warm_up?: boolean;
  port?: number;
  rdma_cm?: boolean;
  ibDev?: string;
  gidIndex?: number;
  bind?: string;
  engine: 'inline' | 'worker';
  as?: ClientVersion;
  report_gbits?: boolean;
  reportBoth?: boolean;
  histogram?: boolean;
  out_json?: boolean;
  out_json_file?: string;
  local?: boolean;
  timeout: number;
  link: LinkChoice;
  probes: boolean;
  udpPort: number;
  json?: boolean;
  /** Seconds. */
  interval?: number;
  jsonStream?: boolean;
}

const VERBS: readonly string[] = ['send', 'write', 'read', 'atomic'] satisfies Verb[];
const MEASURES: readonly string[] = ['bw', 'lat'] satisfies Measure[];
/** Options that choose what `--local` has chosen. */
const NOT_LOCAL = {
  ...{ bind: '--bind', ibDev: '-d', gidIndex: '-x' },
  ...{ rdma_cm: '-R', port: '-p', as: '--as' },
} satisfies Partial<Record<keyof Given, string>>;
const DEFAULT_FILE = 'perftest_out.json';

export async function run(args: readonly string[], given: Given, terminal: Terminal): Promise<number> {
  refuse(given);
  if (given.json && given.jsonStream)
    throw new UsageError('--json prints one document, --json-stream a line for each: name one of both');
  const [verb, measure, host] = args;
  if (given.local) return local(args, given, terminal);
  const test = testOf(verb, measure, given);
  const result = await usage(() =>
    host === undefined ? serve(test, given, terminal) : call(test, host, given, terminal),
  );
  report(result, given, terminal);
  return 0;
}

/** Both ends here: the test that is named, or one of each measure. */
async function local(
  [verb, measure, host]: readonly string[],
  given: Given,
  terminal: Terminal,
): Promise<number> {
  if (host !== undefined) throw new UsageError('--local runs both sides here: leave out the host');
  for (const [name, flag] of Object.entries(NOT_LOCAL))
    if (given[name as keyof Given] !== undefined)
      throw new UsageError(`--local uses two loopback addresses, and TCP between them: leave out ${flag}`);
  if (given.link === 'xdp')
    throw new UsageError(
      '--local runs both ends on one interface, which takes one XDP program: no --link xdp',
    );
  if (verb === undefined) return localTests(given, terminal);
  const result = await localResult(testOf(verb, measure, given), given, terminal);
  report(result, given, terminal);
  return 0;
}

/** One test of each measure. */
async function localTests(given: Given, terminal: Terminal): Promise<number> {
  if (given.out_json || given.out_json_file !== undefined)
    throw new UsageError('--out_json writes one test: name it, as in --local write bw');
  // Both before the first runs: options have to suit both.
  const tests = [testOf('write', 'bw', given), testOf('send', 'lat', given)];
  const results: PerfResult[] = [];
  for (const test of tests) {
    const result = await localResult(test, given, terminal);
    if (!given.json) showResult(result, given, terminal);
    results.push(result);
  }
  if (given.json) terminal.json(results.map(jsonOf));
  return 0;
}

function localResult(test: PerfOptions, given: Given, terminal: Terminal): Promise<PerfResult> {
  const { port: _port, rdmaCm: _rdmaCm, ...side } = sideOf(given, terminal, test);
  return usage(() => localPerf(test, side));
}

/** @throws UsageError for an option of perftest that this command has not */
function refuse(given: object): void {
  for (const [flags, reason] of Object.entries(REFUSED)) {
    const option = new Option(flags);
    if (!(option.attributeName() in given)) continue;
    const name = option.long ?? option.short;
    throw new UsageError(`${name} of perftest is not supported${reason === '' ? '' : `: ${reason}`}`);
  }
}

/** The test of a command line. @throws UsageError for one that perftest has not */
function testOf(verb: string, measure: string, given: Given): PerfOptions {
  if (!VERBS.includes(verb) || !MEASURES.includes(measure))
    throw new UsageError(
      'expected a verb (send, write, read, atomic) and a measure (bw, lat): perf write bw',
    );
  const test = optionsOf(verb as Verb, measure as Measure, given);
  try {
    planOf(test, { rdmaCm: given.rdma_cm === true, histogram: given.histogram === true });
  } catch (error) {
    throw usageError(error);
  }
  return test;
}

function optionsOf(verb: Verb, measure: Measure, given: Given): PerfOptions {
  const { size, iters, duration, margin, mtu, txDepth, rxDepth, cqMod } = given;
  const { outs: outReads, inline_size: inline, atomic_type: atomic } = given;
  // perftest takes -n with -D, and -f without it, and ignores them.
  const length = duration === undefined ? { iters } : { duration, margin };
  return {
    ...{ verb, measure },
    ...present({ ...length, size, mtu, inline, txDepth, rxDepth, cqMod, outReads, atomic }),
    service: given.connection,
    qps: given.qp,
    all: given.all === true,
    bidirectional: given.bidirectional === true,
    events: given.events === true,
    noPeak: given.noPeak === true,
    writeWithImm: given.write_with_imm === true,
    warmUp: given.perform_warm_up === true,
    trafficClass: given.tclass,
    sl: given.sl,
    ackTimeout: given.qpTimeout,
  };
}

/** Those that are not undefined. */
const present = <T extends object>(choices: T): { [K in keyof T]?: NonNullable<T[K]> } =>
  Object.fromEntries(Object.entries(choices).filter(([, value]) => value !== undefined)) as never;

/** A test that this machine can not play is wrong usage as well. */
const usage = (play: () => Promise<PerfResult>): Promise<PerfResult> =>
  play().catch((error) => {
    throw usageError(error);
  });

/** An error of the test's options as wrong usage, under the name of the option; another one as it is. */
function usageError(error: unknown): unknown {
  const { code, errno, attribute = '', message } = error as RoceError;
  const isOption = error instanceof RoceError && code === 'ERR_ROCE_INVALID_ATTRIBUTE' && errno === 'EINVAL';
  const flag = FLAGS[attribute as keyof typeof FLAGS];
  if (!isOption || flag === undefined || !message.startsWith(`${attribute}: `)) return error;
  return new UsageError(flag + message.slice(attribute.length));
}

/** The options of a test, as the command has them. */
const FLAGS: Record<keyof PerfOptions | 'histogram' | 'rdmaCm', string> = {
  ...{ verb: 'verb', measure: 'measure', service: '-c', size: '-s', all: '-a', iters: '-n', duration: '-D' },
  ...{ margin: '-f', qps: '-q', bidirectional: '-b', mtu: '-m', inline: '-I', txDepth: '-t', rxDepth: '-r' },
  ...{ cqMod: '-Q', outReads: '-o', events: '-e', atomic: '-A', writeWithImm: '--write_with_imm' },
  ...{ warmUp: '--perform_warm_up', noPeak: '-N', trafficClass: '--tclass', sl: '-S', ackTimeout: '-u' },
  ...{ histogram: '--histogram', rdmaCm: '-R' },
};

const choiceOf = ({ bind, ibDev, gidIndex }: Given): DeviceChoice =>
  present({ bind, ibDev, gidIdx: gidIndex, gidFlag: '-x' });

function sideOf(given: Given, terminal: Terminal, { measure }: PerfOptions): SideOptions {
  const { port, engine, udpPort, timeout } = given;
  const unit = measure === 'lat' ? 'messages/s' : given.report_gbits ? 'Gb/s' : 'MiB/s';
  const intervals = given.interval !== undefined || given.jsonStream ? new Intervals(unit) : undefined;
  return {
    ...present({ port }),
    ...{ engine, udpPort, timeout, ...openOptions(given.link), ...recoveryOptions(given.probes) },
    signal: terminal.signal,
    rdmaCm: given.rdma_cm === true,
    gigabits: given.report_gbits === true,
    histogram: given.histogram === true,
    ...present({ progressEvery: given.interval === undefined ? undefined : 1000 * given.interval }),
    onProgress: (progress) => {
      const interval = intervals?.next(progress);
      if (interval !== undefined) show(interval, given, terminal);
      const { size, run, runs, part } = progress;
      const sizes = runs > 1 ? `, ${run + 1} of ${runs} sizes` : '';
      const done =
        part === undefined ? 'answering requests' : `${size} bytes${sizes}: ${Math.floor(100 * part)} %`;
      terminal.progress(`${done} …`);
    },
  };
}

async function serve(test: PerfOptions, given: Given, terminal: Terminal): Promise<PerfResult> {
  const choice = choiceOf(given);
  checkChoice(choice);
  if (given.as !== undefined)
    throw new UsageError('--as is for a client: a server answers with the version of its client');
  const fixed = fixedAddress(choice);
  if (given.rdma_cm && fixed === undefined)
    throw new UsageError('a server with -R needs the address to listen at: --bind ADDRESS, or -d with -x');
  const what = given.rdma_cm ? 'connection manager' : 'TCP';
  return servePerf(test, {
    ...sideOf(given, terminal, test),
    address: fixed ?? ((reached) => localAddress(choice, reached, parseIpAddress(reached)!)),
    onListening: (port) => terminal.message(`waiting for a client at ${what} port ${port}`),
  });
}

async function call(test: PerfOptions, name: string, given: Given, terminal: Terminal): Promise<PerfResult> {
  const choice = choiceOf(given);
  checkChoice(choice);
  const host = isIP(name.split('%')[0]) > 0 ? name : (await lookup(name)).address;
  const reached = fixedAddress(choice) ?? (await sourceFor(host));
  const address = localAddress(choice, reached, parseIpAddress(host.split('%')[0])!);
  return callPerf(test, {
    ...sideOf(given, terminal, test),
    host,
    address,
    ...present({ version: given.as }),
  });
}

function showResult(result: PerfResult, given: Given, terminal: Terminal): void {
  if (given.jsonStream) terminal.json({ event: 'result', ...jsonOf(result) });
  else if (given.json) terminal.json(jsonOf(result));
  else print(result, given, terminal);
}

/** Prints the result, and only then writes the file of `--out_json`: one that can not be written costs no result. */
function report(result: PerfResult, given: Given, terminal: Terminal): void {
  showResult(result, given, terminal);
  if (!given.out_json && given.out_json_file === undefined) return;
  const file = given.out_json_file ?? DEFAULT_FILE;
  replaceFile(file, `${JSON.stringify(outJson(result), undefined, 2)}\n`);
}

/** Replaces a file in one step, since both ends of a run may name the same one; in place where a new file would not be the same. */
function replaceFile(file: string, text: string): void {
  const draft = `${file}.${randomUUID()}`;
  try {
    if (isPlain(file)) {
      writeFileSync(draft, text);
      renameSync(draft, file);
      return;
    }
  } catch {
    rmSync(draft, { force: true });
  }
  writeFileSync(file, text);
}

/** Whether there is no such file, or one of this user with the usual mode, without other names, and no pipe or link. */
function isPlain(file: string): boolean {
  const stats = lstatSync(file, { throwIfNoEntry: false });
  if (stats === undefined) return true;
  const { mode, nlink, uid } = stats;
  return (
    stats.isFile() &&
    nlink === 1 &&
    uid === process.geteuid?.() &&
    (mode & 0o777) === (0o666 & ~process.umask())
  );
}

function print(result: PerfResult, given: Given, terminal: Terminal): void {
  for (const line of table(result, given.reportBoth)) terminal.line(line);
}

/** Shows an interval: as data, unless data is one document. */
function show(interval: Interval, given: Given, terminal: Terminal): void {
  if (given.jsonStream) {
    terminal.json({ event: 'interval', ...interval });
    terminal.flush();
  } else if (given.json) terminal.message(intervalLine(interval));
  else {
    terminal.line(intervalLine(interval));
    terminal.flush();
  }
}

function jsonOf(result: PerfResult): object {
  const { plan, gigabits, ...rest } = result;
  const unit = result.measure === 'lat' ? 'usec' : gigabits ? 'Gb/s' : 'MiB/s';
  return { unit, ...rest, plan };
}
