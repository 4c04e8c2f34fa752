/**
 * A connection to a peer whose IPv4 Identifications count up, while somebody forges packets under the peer's address. Needs
 * root for the peer's raw socket; with ROCE_ROOT_TESTS set, as in .ci/run, it fails without.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openDevice } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';

const able = process.getuid?.() === 0;
if (!able && process.env.ROCE_ROOT_TESTS) throw new Error('a raw socket needs root');

const net = `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}`;
const [OURS, PEER] = [`${net}.1`, `${net}.2`];
const PEER_QPN = 0x1234;
const MESSAGES = 20;
/** Seconds that the peer waits for an ACK, so that a slow machine causes no second try. */
const PATIENCE = 20;

async function connection(forge: boolean) {
  await using device = await openDevice({ address: OURS, link: 'udp' });
  const pd = await device.allocPd();
  const cq = await device.createCq(256);
  const mr = await pd.registerMr(new Uint8Array(64));
  const qp = await pd.createQp({ sendCq: cq, cap: { maxRecvWr: 128 } });
  await qp.toInit();
  for (let i = 0; i < 100; i++) qp.postRecv({ sgList: [{ mr }] });
  await qp.connect({ qpNum: PEER_QPN, psn: 1000, gid: PEER, mtu: 1024 });
  const peer = join(import.meta.dirname, 'id-window/counting_peer.py');
  const { stdout } = await promisify(execFile)('python3', [
    peer,
    ...[PEER, OURS, qp.qpNum, PEER_QPN, 1000, PATIENCE, MESSAGES, forge ? 1 : 0].map(String),
  ]);
  const { link, icrcOutOfWindow, icrcErrors } = await device.counters();
  const { settled, tries, forged } = JSON.parse(stdout);
  return { settled, tries, forged, received: cq.poll(256).length, icrcOutOfWindow, icrcErrors, link };
}

const once = (messages: number) => Array.from({ length: messages }, () => 1);

test.skipIf(!able)('without a forger every message takes one try', async () => {
  expect(await connection(false)).toMatchObject({
    settled: once(10),
    tries: once(MESSAGES),
    received: 10 + MESSAGES,
    icrcOutOfWindow: 0,
    icrcErrors: 0,
  });
});

test.skipIf(!able)('forged Identifications end no connection, and cost few packets', async () => {
  const { settled, tries, forged, received, icrcOutOfWindow } = await connection(true);
  expect(settled).toEqual(once(10));
  expect(forged).toBeGreaterThan(8);
  expect(received).toBe(10 + MESSAGES);
  // The first four strays of the minute are the forger's; the fifth opens the window.
  expect(icrcOutOfWindow).toBe(4);
  expect(tries).toEqual(once(MESSAGES));
});
