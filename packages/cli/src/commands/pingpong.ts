/** `roce pingpong`: ibv_rc_pingpong's peer, as server and as client. */
import { lookup } from 'node:dns/promises';
import { isIPv4 } from 'node:net';
import { interfaceByAddress } from '@node-roce/link';
import { RoceError } from '@node-roce/verbs-api';
import { gidToText, isIpv4Mapped, isLinkLocal } from '@node-roce/wire';
import { Endpoint, type PingpongOptions } from '../pingpong/endpoint.ts';
import { callExchange, type PingpongAddress, serveExchange } from '../pingpong/exchange.ts';
import { sourceFor } from '../route.ts';
import type { Terminal } from '../terminal.ts';

interface Options extends PingpongOptions {
  /** TCP port of the exchange. */
  port: number;
  bind?: string;
  json: boolean;
}

interface Game {
  endpoint: Endpoint;
  remote: PingpongAddress;
}

export async function run(args: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const { endpoint, remote } =
    args[0] === undefined ? await serve(options, terminal) : await call(args[0], options, terminal);
  await using _ = endpoint;
  if (!options.json) {
    terminal.line(`  local address:  ${describe(endpoint.local)}`);
    terminal.line(`  remote address: ${describe(remote)}`);
    terminal.flush();
  }
  const seconds = await endpoint.play(terminal.signal);
  const wrong = options.check ? endpoint.wrongPages() : [];
  if (options.json) await reportJson({ endpoint, remote }, options, seconds, wrong, terminal);
  else report(options, seconds, wrong, terminal);
  terminal.flush();
  await endpoint.linger(terminal.signal);
  return wrong.length === 0 ? 0 : 1;
}

/** Waits for a client; without `--bind`, the device is opened at the address that the client came to. */
async function serve(options: Options, terminal: Terminal): Promise<Game> {
  const { port, timeout, bind } = options;
  let endpoint = bind === undefined ? undefined : await Endpoint.open(bind, options, false);
  let peer: PingpongAddress | undefined;
  const onListening = () => terminal.message(`waiting for a client at TCP port ${port}`);
  try {
    await serveExchange(
      { port, timeout, signal: terminal.signal, onListening },
      async (remote, reachedAt) => {
        endpoint ??= await Endpoint.open(addressFor(remote.gid, reachedAt), options, false);
        await endpoint.connect(remote);
        peer = remote;
        return endpoint.local;
      },
    );
    return { endpoint: endpoint!, remote: peer! };
  } catch (error) {
    await endpoint?.device.close();
    throw error;
  }
}

async function call(name: string, options: Options, terminal: Terminal): Promise<Game> {
  const { port, timeout, bind } = options;
  const { address: host } = await lookup(name);
  const endpoint = await Endpoint.open(bind ?? (await sourceFor(host)), options, true);
  let peer: PingpongAddress | undefined;
  try {
    await callExchange({ host, port, timeout, signal: terminal.signal }, endpoint.local, async (remote) => {
      await endpoint.connect(remote);
      peer = remote;
    });
    return { endpoint, remote: peer! };
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
  { endpoint, remote }: Game,
  { size, iters, mtu, check }: Options,
  seconds: number,
  wrong: number[],
  terminal: Terminal,
): Promise<void> {
  const counters = await endpoint.device.counters();
  const bytes = 2 * size * iters;
  const side = ({ lid, qpNum, psn, gid }: PingpongAddress) => ({ lid, qpNum, psn, gid: gidToText(gid) });
  terminal.json({
    local: side(endpoint.local),
    remote: side(remote),
    size,
    iters,
    mtu,
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
