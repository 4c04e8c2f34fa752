/** `roce pingpong`: the peer of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong. */
import { lookup } from 'node:dns/promises';
import { gidToIpText, gidToText, parseIpAddress } from '@node-roce/wire';
import { UsageError } from '../options.ts';
import { tooLong } from '../path-mtu.ts';
import { Endpoint, type PingpongOptions } from '../pingpong/endpoint.ts';
import {
  callExchange,
  type Party,
  type PingpongAddress,
  SRQ_SLOTS,
  serveExchange,
} from '../pingpong/exchange.ts';
import { play } from '../pingpong/game.ts';
import { checkChoice, type DeviceChoice, fixedAddress, localAddress } from '../pingpong/local-address.ts';
import { sourceFor } from '../route.ts';
import type { Terminal } from '../terminal.ts';

/** The options as the command line has them. */
interface Given extends Omit<PingpongOptions, 'size' | 'qps'>, DeviceChoice {
  size?: number;
  numQp?: number;
  /** TCP port of the exchange. */
  port: number;
  json: boolean;
}

interface Options extends PingpongOptions, DeviceChoice {
  port: number;
  json: boolean;
}

interface Game {
  endpoint: Endpoint;
  remotes: readonly PingpongAddress[];
}

export async function run(args: readonly string[], given: Given, terminal: Terminal): Promise<number> {
  const options = complete(given);
  const isClient = args[0] !== undefined;
  const { endpoint, remotes } = isClient
    ? await call(args[0], options, terminal)
    : await serve(options, terminal);
  await using _ = endpoint;
  if (!options.json) {
    for (const local of endpoint.locals) terminal.line(`  local address:  ${describe(local)}`);
    for (const remote of remotes) terminal.line(`  remote address: ${describe(remote)}`);
    terminal.flush();
  }
  const seconds = await play(endpoint, options, isClient, terminal.signal).catch(async (error) => {
    await explain(remotes[0], options, terminal);
    throw error;
  });
  const wrong = options.check ? endpoint.wrongPages() : [];
  if (options.json) await reportJson({ endpoint, remotes }, options, seconds, wrong, terminal);
  else report(options, seconds, wrong, terminal);
  terminal.flush();
  await endpoint.linger(terminal.signal);
  return wrong.length === 0 ? 0 : 1;
}

/** Reports a router's ICMP error, if one explains why a game ended. */
async function explain({ gid }: PingpongAddress, { mtu }: Options, terminal: Terminal): Promise<void> {
  if (terminal.signal.aborted || mtu === undefined) return;
  const why = await tooLong(gidToIpText(gid), mtu);
  if (why !== undefined) terminal.message(why);
}

/** Fills in the defaults that depend on other options, as the tools have them. */
function complete({ numQp, ...given }: Given): Options {
  checkChoice(given);
  const { type, srq, rxDepth, size = type === 'ud' ? 2048 : 4096 } = given;
  if (srq && type !== 'rc') throw new UsageError('--srq needs --type rc');
  if (numQp !== undefined && !srq) throw new UsageError('--num-qp needs --srq');
  const qps = srq ? (numQp ?? 16) : 1;
  if (rxDepth < qps)
    throw new UsageError(`--rx-depth ${rxDepth}: expected at least ${qps}, one receive for each queue pair`);
  return { ...given, size, qps };
}

const partyOf = ({ srq, qps }: Options): Party => ({ count: qps, slots: srq ? SRQ_SLOTS : 1 });

/** Waits for a client. Unless an address was chosen, the device is opened at the address that the client reached. */
async function serve(options: Options, terminal: Terminal): Promise<Game> {
  const { port, timeout } = options;
  const fixed = fixedAddress(options);
  let endpoint = fixed === undefined ? undefined : await Endpoint.open(fixed, options, false);
  let peers: readonly PingpongAddress[] = [];
  const onListening = () => terminal.message(`waiting for a client at TCP port ${port}`);
  try {
    await serveExchange(
      { port, timeout, signal: terminal.signal, onListening, ...partyOf(options) },
      async (remotes, reachedAt) => {
        const reached = reachedAt.replace(/^::ffff:/i, '').split('%')[0];
        const peer = parseIpAddress(gidToIpText(remotes[0].gid))!;
        endpoint ??= await Endpoint.open(localAddress(options, reached, peer), options, false);
        await endpoint.connect(remotes);
        peers = remotes;
        return endpoint.locals;
      },
    );
    return { endpoint: endpoint!, remotes: peers };
  } catch (error) {
    await endpoint?.device.close();
    throw error;
  }
}

async function call(name: string, options: Options, terminal: Terminal): Promise<Game> {
  const { port, timeout } = options;
  const { address: host } = await lookup(name);
  const reached = fixedAddress(options) ?? (await sourceFor(host));
  const peer = parseIpAddress(host.split('%')[0])!;
  const endpoint = await Endpoint.open(localAddress(options, reached, peer), options, true);
  let peers: readonly PingpongAddress[] = [];
  try {
    const exchange = { host, port, timeout, signal: terminal.signal, ...partyOf(options) };
    await callExchange(exchange, endpoint.locals, async (remotes) => {
      await endpoint.connect(remotes);
      peers = remotes;
    });
    return { endpoint, remotes: peers };
  } catch (error) {
    await endpoint.device.close();
    throw error;
  }
}

const hex = (value: number, digits: number) => `0x${value.toString(16).padStart(digits, '0')}`;

function describe({ lid, qpNum, psn, gid }: PingpongAddress): string {
  return `LID ${hex(lid, 4)}, QPN ${hex(qpNum, 6)}, PSN ${hex(psn, 6)}, GID ${gidToText(gid)}`;
}

const megabits = (bytes: number, seconds: number) => (bytes * 8) / seconds / 1e6;

/** In the words of the tool, which scripts know. */
function report({ size, iters }: Options, seconds: number, wrong: number[], terminal: Terminal): void {
  const bytes = 2 * size * iters;
  const time = `in ${seconds.toFixed(2)} seconds`;
  terminal.line(`${bytes} bytes ${time} = ${megabits(bytes, seconds).toFixed(2)} Mbit/sec`);
  terminal.line(`${iters} iters ${time} = ${((seconds * 1e6) / iters).toFixed(2)} usec/iter`);
  for (const page of wrong) terminal.line(`invalid data in page ${page}`);
}

async function reportJson(
  { endpoint, remotes }: Game,
  { type, srq, size, iters, mtu, check }: Options,
  seconds: number,
  wrong: number[],
  terminal: Terminal,
): Promise<void> {
  const counters = await endpoint.device.counters();
  const bytes = 2 * size * iters;
  const side = ({ lid, qpNum, psn, gid }: PingpongAddress) => ({ lid, qpNum, psn, gid: gidToText(gid) });
  const sides = (all: readonly PingpongAddress[]) => (srq ? all.map(side) : side(all[0]));
  terminal.json({
    type,
    local: sides(endpoint.locals),
    remote: sides(remotes),
    size,
    iters,
    mtu: type === 'ud' ? endpoint.device.query().activeMtu : mtu,
    bytes,
    seconds,
    megabitsPerSecond: megabits(bytes, seconds),
    microsecondsPerIteration: (seconds * 1e6) / iters,
    sentPackets: counters.sentPackets,
    receivedPackets: counters.receivedPackets,
    retransmittedPackets: counters.retransmittedPackets,
    icrcErrors: counters.icrcErrors,
    icrcOutOfWindow: counters.icrcOutOfWindow,
    ...(check ? { wrongPages: wrong } : {}),
  });
}
