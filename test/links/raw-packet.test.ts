/**
 * RAW_PACKET queue pairs over a cable between two network namespaces. Needs root and iproute2; with ROCE_ROOT_TESTS set, as in
 * .ci/run, it fails without them. ROCE_RAW_FRAMES asks for more frames (1,000,000: test/evidence/test-long.md).
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { openDevice } from '@node-roce/verbs-api';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { ShapedCable } from './shaped/network.ts';

const FRAMES = Number(process.env.ROCE_RAW_FRAMES ?? 4_000);
const cable = ShapedCable.make(`roce-raw-${process.pid}`, (why) => {
  if (process.env.ROCE_ROOT_TESTS) throw new Error(why);
  console.warn(`raw packets are not tested, for want of a network namespace: ${why}`);
});
afterAll(() => cable?.[Symbol.dispose]());
beforeAll(() => cable?.mtu(9000));

/** test/links/raw/player.mjs at an end of the cable. */
function play(end: 0 | 1, ...args: string[]) {
  const { namespace, interface: nic } = cable!.ends[end];
  const player = join(import.meta.dirname, 'raw/player.mjs');
  const [role, engine, ...rest] = args;
  const child = spawn(
    'ip',
    ['netns', 'exec', namespace, process.execPath, player, role, nic, engine, ...rest],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  onTestFinished(() => void child.kill());
  let stderr = '';
  child.stderr.on('data', (text) => {
    stderr += text;
  });
  const lines: string[] = [];
  const reader = createInterface({ input: child.stdout });
  reader.on('line', (line) => lines.push(line));
  const exited = once(child, 'exit').then(([code]) => {
    if (code !== 0) throw new Error(`${role}: ${code} ${stderr}`);
    return JSON.parse(lines.at(-1)!);
  });
  // Looked at later, or never where the other end fails first.
  exited.catch(() => {});
  const ready = Promise.race([once(reader, 'line'), exited]);
  ready.catch(() => {});
  return { ready, result: exited };
}

test.skipIf(!cable).each(['inline', 'worker'] as const)(
  `${FRAMES} frames of 60 to 9,000 bytes arrive as they were sent, engine: %s`,
  async (engine) => {
    const receiver = play(1, 'receive', engine, `${FRAMES}`);
    await receiver.ready;
    const sender = play(0, 'send', engine, `${FRAMES}`);
    const [sent, received] = await Promise.all([sender.result, receiver.result]);
    expect(sent.sent).toBe(FRAMES);
    // Credits, which it sent itself, are not among what it received.
    expect(received).toEqual({
      received: FRAMES,
      bytes: sent.bytes,
      receivedPackets: FRAMES,
      outOfBuffer: 0,
      droppedPackets: 0,
    });
    console.log(`${FRAMES} frames, ${received.bytes} bytes`);
  },
  600_000,
);

test.skipIf(!cable)('the end of a device closes the packet sockets of its queue pairs', async () => {
  const packetSockets = () =>
    readdirSync('/proc/self/fd').filter((fd) => {
      try {
        return inodes().has(/socket:\[(\d+)\]/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1] ?? '');
      } catch {
        return false; // It was closed meanwhile.
      }
    }).length;
  const inodes = () =>
    new Set(
      readFileSync('/proc/net/packet', 'utf8')
        .split('\n')
        .map((line) => line.trim().split(/\s+/)[8]),
    );
  const device = await openDevice({ address: '127.0.0.74', port: 50_000 + (process.pid % 10_000) });
  const pd = await device.allocPd();
  const sendCq = await device.createCq(4);
  for (let i = 0; i < 2; i++) await (await pd.createQp({ type: 'RAW_PACKET', sendCq })).activate();
  expect(packetSockets()).toBe(2);
  await device.close();
  expect(packetSockets()).toBe(0);
});

test.skipIf(!cable)('the kernel at the other end answers an ARP request', async () => {
  const { result } = play(0, 'arp', 'inline', '10.77.0.1,10.77.0.2');
  const { status, frame, mac } = await result;
  expect(status).toBe('SUCCESS');
  const theirs = cable!.macOf(1);
  // To us, from them, ARP; Ethernet and IPv4, reply; sender and target (RFC 826).
  expect(frame.slice(0, 84)).toBe(`${mac}${theirs}08060001080006040002${theirs}0a4d0002${mac}0a4d0001`);
});
