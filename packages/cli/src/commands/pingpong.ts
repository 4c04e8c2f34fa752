/** `roce pingpong`: the peer of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong. */
import { lookup } from 'node:dns/promises';
import { isIPv4 } from 'node:net';
import { interfaceByAddress } from '@node-roce/link';
import { RoceError } from '@node-roce/verbs-api';
import { gidToText, isIpv4Mapped, isLinkLocal } from '@node-roce/wire';
import { UsageError } from '../options.ts';
import { Endpoint, type PingpongOptions } from '../pingpong/endpoint.ts';
import {
  callExchange,
  type Party,
  type PingpongAddress,
  SRQ_SLOTS,
  serveExchange,
} from '../pingpong/exchange.ts';
import { play } from '../pingpong/game.ts';
import { sourceFor } from '../route.ts';
import type { Terminal } from '../terminal.ts';

/** The command line's. */
interface Given extends Omit<PingpongOptions, 'size' | 'qps'> {
  size?: number;
  numQp?: number;
  port: number;
  bind?: string;
  json: boolean;
}

interface Options extends PingpongOptions {
  /** TCP port of the exchange. */
  port: number;
  bind?: string;
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
    ? await call(args[0]!, options, terminal)
    : await serve(options, terminal);
  await using _ = endpoint;
  if (!options.json) {
    for (const local of endpoint.locals) terminal.line(`  local address:  ${describe(local)}`);
    for (const remote of remotes) terminal.line(`  remote address: ${describe(remote)}`);
    terminal.flush();
  }
  const seconds = await play(endpoint, options, isClient, terminal.signal);
  const wrong = options.check ? endpoint.wrongPages() : [];
  if (options.json) await reportJson({ endpoint, remotes }, options, seconds, wrong, terminal);
  else report(options, seconds, wrong, terminal);
  terminal.flush();
  await endpoint.linger(terminal.signal);
  return wrong.length === 0 ? 0 : 1;
}

/** The defaults that depend on other options; those of the tools. */
function complete({ numQp, ...given }: Given): Options {
  const { type, srq, rxDepth, size = type === 'ud' ? 2048 : 4096 } = given;
  if (srq && type !== 'rc') throw new UsageError('--srq is for --type rc');
  if (numQp !== undefined && !srq) throw new UsageError('--num-qp is for --srq');
  const qps = srq ? (numQp ?? 16) : 1;
  if (rxDepth < qps)
    throw new UsageError(`--rx-depth ${rxDepth}: expected one receive for each of ${qps} queue pairs`);
  return { ...given, size, qps };
}

const partyOf = ({ srq, qps }: Options): Party => ({ count: qps, slots: srq ? SRQ_SLOTS : 1 });

/** Waits for a client; without `--bind`, the device is opened at the address that the client came to. */
async function serve(options: Options, terminal: Terminal): Promise<Game> {
  const { port, timeout, bind } = options;
  let endpoint = bind === undefined ? undefined : await Endpoint.open(bind, options, false);
  let peers: readonly PingpongAddress[] = [];
  const onListening = () => terminal.message(`waiting for a client at TCP port ${port}`);
  try {
    await serveExchange(
      { port, timeout, signal: terminal.signal, onListening, ...partyOf(options) },
      async (remotes, reachedAt) => {
        endpoint ??= await Endpoint.open(addressFor(remotes[0]!.gid, reachedAt), options, false);
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
  const { port, timeout, bind } = options;
  const { address: host } = await lookup(name);
  const endpoint = await Endpoint.open(bind ?? (await sourceFor(host)), options, true);
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

/** An address of the interface that a client reached us at, of the kind that its GID is. */
function addressFor(gid: Uint8Array, reachedAt: string): string {
  const reached = reachedAt.replace(/^::ffff:/i, '').split('%')[0]!;
  const family = isIpv4Mapped(gid) ? 4 : 6;
  if (isIPv4(reached) === (family === 4)) return reached;
  const nic = interfaceByAddress(reached);
  const found = nic.addresses.find((a) => a.family === family && a.linkLocal === isLinkLocal(gid));
  if (found) return found.address;
  throw new RoceError(
    'ERR_ROCE_NO_INTERFACE',
    `${nic.name} has no IPv${family} address for the peer's GID ${gidToText(gid)}`,
    { errno: 'EADDRNOTAVAIL', attribute: 'bind', expected: "--bind with an address of the peer's kind" },
  );
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
  const sides = (all: readonly PingpongAddress[]) => (srq ? all.map(side) : side(all[0]!));
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
    icrcErrors: counters.icrcErrors! + counters.icrcOutOfWindow!,
    ...(check ? { wrongPages: wrong } : {}),
  });
}
