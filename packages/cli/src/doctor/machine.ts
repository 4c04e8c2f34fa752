/** Checks of this machine: the addon, UDP port 4791, the receive buffer, a message over loopback. */
import { capabilities, listInterfaces, readText } from '@node-roce/link';
import { type Device, openDevice, type RoceError } from '@node-roce/verbs-api';
import { type Check, fail, ok, warn } from './check.ts';

/** rxe sends up to 128 packets before it waits; the kernel charges a full one 8520 bytes, and keeps as much again. */
const ENOUGH_BUFFER = 2 * 128 * 8520;
const CAP_NET_ADMIN = 12;

/** The link that `auto` chooses on this machine; asked beforehand, which avoids its warning. */
export async function availableLink(): Promise<'udp' | 'dgram'> {
  return await import('@node-roce/dgram-native').then(
    () => 'udp' as const,
    () => 'dgram' as const,
  );
}

export async function checkAddon(): Promise<Check> {
  try {
    const { features } = await import('@node-roce/dgram-native');
    const { gso, gro, gsoMaxSegments, crc } = features();
    const sends = gso
      ? `sends runs of up to ${gsoMaxSegments} packets (GSO)`
      : 'sends packets one by one (no GSO)';
    const text = `loaded; ${sends}, ${gro ? 'receives runs (GRO)' : 'receives packets one by one (no GRO)'}, CRC by ${crc}`;
    if (!gso || !gro) return warn('addon', `${text}; Linux 5.0 or newer is faster`);
    return crc === 'table'
      ? warn('addon', `${text}; a processor with PCLMULQDQ would be many times as fast`)
      : ok('addon', text);
  } catch (error) {
    return warn(
      'addon',
      `${(error as Error).message} Until then, the dgram link reaches node-roce programs only`,
    );
  }
}

/** The address to check if none was named: the first that other machines can reach. */
export function usualAddress(): string {
  const reachable = listInterfaces()
    .filter((nic) => nic.up && !nic.loopback)
    .flatMap((nic) => nic.addresses.filter((a) => !a.linkLocal));
  return reachable[0]?.address ?? '127.0.0.1';
}

/** Opens a device as a program would, and checks the result. */
export async function* checkDevice(address: string): AsyncGenerator<Check> {
  let device: Device;
  try {
    device = await openDevice({ address, link: await availableLink() });
  } catch (error) {
    yield fail('port', (error as Error).message);
    return;
  }
  try {
    yield ok('port', `UDP port 4791 is free at ${address}`);
    const { receiveBuffer, link, limitations } = device.query();
    yield checkBuffer(receiveBuffer, link);
    const text = [`${link}.`, ...limitations].join(' ');
    yield link === 'dgram' ? warn('link', text) : ok('link', text);
  } finally {
    await device.close();
  }
}

function checkBuffer(granted: number, link: string): Check {
  const limit = readText('/proc/sys/net/core/rmem_max').trim() || 'unknown';
  const admin = capabilities()(CAP_NET_ADMIN);
  const past = admin
    ? 'with CAP_NET_ADMIN, this limit does not apply'
    : 'without CAP_NET_ADMIN, this is the limit';
  // Node can't force the size, whatever its capabilities.
  const text = `${granted} bytes granted (net.core.rmem_max is ${limit}; ${link === 'dgram' ? 'this is the limit' : past})`;
  if (granted >= ENOUGH_BUFFER) return ok('receive buffer', text);
  return warn(
    'receive buffer',
    `${text}: bursts of a fast sender overflow it and are retransmitted; raise the limit with 'sysctl -w net.core.rmem_max=16777216'`,
  );
}

/** Sends a message from one adapter to another, at a port other than 4791, which has a check of its own. */
export async function checkLoopback(): Promise<Check> {
  const message = new TextEncoder().encode('loopback check');
  for (let attempt = 0; ; attempt++) {
    const port = 49_152 + Math.floor(Math.random() * 16_000);
    try {
      const link = await availableLink();
      await using a = await openDevice({ address: '127.0.0.1', port, link });
      await using b = await openDevice({ address: '127.0.0.2', port, link });
      const [fromCq, toCq] = [await a.createCq(8), await b.createCq(8)];
      const [fromPd, toPd] = [await a.allocPd(), await b.allocPd()];
      const from = await fromPd.createQp({ sendCq: fromCq });
      const to = await toPd.createQp({ sendCq: toCq });
      const mr = await toPd.registerMr(new Uint8Array(64));
      await from.connect(to.connectionData());
      await to.connect(from.connectionData());
      to.postRecv({ sgList: [{ mr }] });
      from.postSend({ opcode: 'SEND', inline: true, signaled: true, sgList: [message] });
      const wc = await toCq.next({ signal: AbortSignal.timeout(3000) });
      if (!wc.ok) return fail('loopback', `a message ended with ${wc.status}`);
      const came = Buffer.from(mr.bytes(0, wc.byteLen));
      return came.equals(message)
        ? ok('loopback', 'a message went from one adapter to another')
        : fail('loopback', `a message arrived as ${JSON.stringify(came.toString())}`);
    } catch (error) {
      if ((error as RoceError).errno === 'EADDRINUSE' && attempt < 3) continue;
      const { name, message: text } = error as Error;
      return fail(
        'loopback',
        name === 'TimeoutError' ? 'a message was lost: is there a firewall on lo?' : text,
      );
    }
  }
}
