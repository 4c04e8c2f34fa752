/** `roce doctor`: what RoCE in software needs here, and the way to a peer. Changes nothing. */
import { lookup } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import { isIPv4 } from 'node:net';
import { activeMtuOf, describePortOwner, interfaceByAddress, listInterfaces } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { sourceFor } from '../route.ts';
import type { Terminal } from '../terminal.ts';

type Verdict = 'ok' | 'warn' | 'fail';

interface Check {
  check: string;
  verdict: Verdict;
  /** What was found, and what to do about it. */
  text: string;
}

/** Bytes of receive buffer under which rxe's 128 packets of 4096 bytes do not fit. */
const ENOUGH_BUFFER = 2 * 1024 * 1024;

export async function run(
  args: readonly string[],
  { bind, json }: { bind?: string; json: boolean },
  terminal: Terminal,
): Promise<number> {
  const checks: Check[] = [];
  const add = (check: string, verdict: Verdict, text: string) => {
    checks.push({ check, verdict, text });
    if (json) return;
    const paint = { ok: terminal.colors.green, warn: terminal.colors.yellow, fail: terminal.colors.red }[
      verdict
    ];
    terminal.line(`${paint(verdict.padEnd(4))}  ${check}: ${text}`);
    terminal.flush();
  };

  const addon = await checkAddon(add);
  const peer = args[0];
  const source = peer === undefined ? bind : await checkRoute(peer, bind, add);
  if (addon) {
    await checkPort(source, add);
    await checkLoopback(add);
  }
  if (json) terminal.json({ ok: checks.every((c) => c.verdict !== 'fail'), checks });
  return checks.some((c) => c.verdict === 'fail') ? 1 : 0;
}

type Add = (check: string, verdict: Verdict, text: string) => void;

async function checkAddon(add: Add): Promise<boolean> {
  try {
    const { features } = await import('@node-roce/dgram-native');
    const { gso, gro, gsoMaxSegments, crc } = features();
    const runs = gso
      ? `runs of ${gsoMaxSegments} packets leave as one`
      : 'packets leave one by one (no UDP_SEGMENT)';
    add(
      'addon',
      gso && gro ? 'ok' : 'warn',
      `loaded; ${runs}; ${gro ? 'and arrive as one' : 'no UDP_GRO'}; CRC by ${crc}`,
    );
    return true;
  } catch (error) {
    add('addon', 'fail', `${(error as Error).message}`);
    return false;
  }
}

async function checkRoute(peer: string, bind: string | undefined, add: Add): Promise<string | undefined> {
  let address: string;
  try {
    ({ address } = await lookup(peer));
  } catch (error) {
    add('peer', 'fail', `${peer} can not be looked up (${(error as NodeJS.ErrnoException).code})`);
    return undefined;
  }
  try {
    const source = bind ?? (await sourceFor(address));
    const nic = interfaceByAddress(source);
    add('peer', 'ok', `packets to ${address} leave from ${source} on ${nic.name}`);
    const mtu = activeMtuOf(nic);
    const enough = mtu === 4096;
    add(
      'mtu',
      enough ? 'ok' : 'warn',
      `${nic.name} has MTU ${nic.mtu ?? 'unknown'}, so the path MTU is ${mtu} at most` +
        (enough ? '' : '; 4200 or more on all of the way would allow 4096'),
    );
    return source;
  } catch (error) {
    add('peer', 'fail', `no way to ${address}: ${(error as Error).message}`);
    return undefined;
  }
}

async function checkPort(source: string | undefined, add: Add): Promise<void> {
  const address =
    source ??
    listInterfaces().flatMap((nic) => (nic.loopback ? [] : nic.addresses.filter((a) => !a.linkLocal)))[0]
      ?.address ??
    '127.0.0.1';
  try {
    const device = await openDevice({ address });
    const { receiveBuffer, link, limitations } = device.query();
    await device.close();
    add('port', 'ok', `UDP port 4791 is free at ${address}`);
    const limit = Number(readFileSync('/proc/sys/net/core/rmem_max', 'utf8'));
    const wide = receiveBuffer >= ENOUGH_BUFFER;
    add(
      'buffer',
      wide ? 'ok' : 'warn',
      `receive buffer of ${receiveBuffer} bytes (net.core.rmem_max is ${limit})` +
        (wide
          ? ''
          : '; bursts of a fast sender will be lost and sent again: raise it with `sysctl -w net.core.rmem_max=16777216`, or run with CAP_NET_ADMIN'),
    );
    add('link', 'ok', `${link}. ${limitations.join(' ')}`);
  } catch (error) {
    const { errno, message } = error as { errno?: string; message: string };
    if (errno !== 'EADDRINUSE') add('port', 'fail', message);
    else
      add(
        'port',
        'fail',
        `UDP port 4791 is in use at ${address}: ${describePortOwner(4791, isIPv4(address) ? 4 : 6)}`,
      );
  }
}

/** A message from an adapter to another one, on addresses of loopback that hardly anybody uses. */
async function checkLoopback(add: Add): Promise<void> {
  const text = new TextEncoder().encode('is anybody there?');
  try {
    await using a = await openDevice({ address: '127.86.65.1' });
    await using b = await openDevice({ address: '127.86.65.2' });
    const [ca, cb] = [await a.createCq(8), await b.createCq(8)];
    const [pa, pb] = [await a.allocPd(), await b.allocPd()];
    const [qa, qb] = [await pa.createQp({ sendCq: ca }), await pb.createQp({ sendCq: cb })];
    const mr = await pb.registerMr(new Uint8Array(64));
    await qa.connect(qb.connectionData());
    await qb.connect(qa.connectionData());
    qb.postRecv({ sgList: [{ mr }] });
    qa.postSend({ opcode: 'SEND', inline: true, signaled: true, sgList: [text] });
    const wc = await cb.next({ signal: AbortSignal.timeout(2000) });
    const same = wc.ok && wc.byteLen === text.length && text.every((byte, i) => byte === mr.bytes()[i]);
    add(
      'loopback',
      same ? 'ok' : 'fail',
      same ? 'a message went from one adapter to another' : `a message came to ${wc.status}`,
    );
  } catch (error) {
    add('loopback', 'fail', (error as Error).message);
  }
}
