/**
 * A side of an XRC ping-pong as `ibv_xsrq_pingpong` has it, in a process of its own: `server ADDRESS CLIENTS ROUNDS BYTES` or `clients …`.
 * Each client has an initiator and a target to the server, and back. Every message names the SRQ that it is for; the server has one for all.
 * Connection data goes through the parent; the result is what came, by client.
 */
import { openDevice } from '@node-roce/verbs-api';

const [role, address, ...numbers] = process.argv.slice(2);
const [clients, rounds, bytes] = numbers.map(Number);
const isServer = role === 'server';

const device = await openDevice({ address, experimental: ['xrc'] });
const pd = await device.allocPd();
const domain = await device.openXrcDomain();
const memory = new Uint8Array(2 * clients * bytes);
const mr = await pd.registerMr(memory, { access: { localWrite: true } });
/** Messages to send are in the first half, one for each client; receives fill the second. */
const outOf = (client) => ({ mr, offset: client * bytes, length: bytes });
const into = (slot) => ({ mr, offset: (clients + slot) * bytes, length: bytes });

// The server has one SRQ and one completion queue, the clients one each.
const stations = [];
for (let i = 0; i < (isServer ? 1 : clients); i++) {
  const cq = await device.createCq(4 * clients);
  stations.push({ cq, srq: await pd.createSrq({ maxWr: clients, xrc: { domain, cq } }) });
}
const stationOf = (client) => stations[isServer ? 0 : client];

const links = [];
for (let client = 0; client < clients; client++) {
  const { cq, srq } = stationOf(client);
  const ini = await pd.createQp({ type: 'XRC_INI', sendCq: cq });
  const tgt = await domain.createTarget();
  links.push({ client, ini, tgt, srq, cq, remoteSrqn: 0, sent: 0, received: 0, wrong: 0 });
  srq.postRecv({ wrId: client, sgList: [into(client)] });
}

process.send(
  links.map(({ ini, tgt, srq }) => ({
    ini: ini.connectionData(),
    tgt: tgt.connectionData(),
    srqn: srq.number,
  })),
);
const peers = await new Promise((resolve) => process.once('message', resolve));
for (const link of links) {
  const peer = peers[link.client];
  link.remoteSrqn = peer.srqn;
  await link.tgt.connect(peer.ini);
  await link.ini.connect(peer.tgt);
}
// Both are ready before the first message leaves.
process.send('ready');
await new Promise((resolve) => process.once('message', resolve));

/** The bytes of round `n` from a client and back. */
const contentOf = (client, n) => (client * 31 + n * 7) & 0xff;
const byTarget = new Map(links.map((link) => [link.tgt.qpNum, link]));

function send(link) {
  memory.fill(contentOf(link.client, link.sent), link.client * bytes, (link.client + 1) * bytes);
  const sgList = [outOf(link.client)];
  link.ini.postSend({
    opcode: 'SEND',
    remoteSrqn: link.remoteSrqn,
    wrId: 1000 + link.client,
    signaled: true,
    sgList,
  });
  link.sent++;
}

function take(wc) {
  if (!wc.ok) throw new Error(`${role}: ${wc.status} of ${wc.wrId}`);
  if (wc.opcode !== 'RECV') return;
  const link = byTarget.get(wc.qpNum);
  const slot = Number(wc.wrId);
  const at = (clients + slot) * bytes;
  const expected = contentOf(link.client, link.received++);
  if (wc.byteLen !== bytes || memory.subarray(at, at + bytes).some((byte) => byte !== expected)) link.wrong++;
  link.srq.postRecv({ wrId: slot, sgList: [into(slot)] });
  if (isServer || link.sent < rounds) send(link);
}

if (!isServer) for (const link of links) send(link);
const isDone = () => links.every(({ sent, received }) => sent === rounds && received === rounds);
while (!isDone()) {
  for (const { cq } of stations) for (const wc of cq.poll(16)) take(wc);
  await new Promise((resolve) => setImmediate(resolve));
}
const counts = await Promise.all(links.map(({ ini }) => ini.counters()));
process.send(links.map(({ received, wrong }, i) => ({ received, wrong, rnr: counts[i].receivedRnrErr })));
// Until the parent has heard of both, the last ACKs are still wanted.
await new Promise((resolve) => process.once('message', resolve));
await device.close();
process.disconnect();
