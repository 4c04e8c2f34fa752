/**
 * Sends datagrams to a queue pair that is not there, as fast as it can: node test/hostile/flood.mjs <own address> <victim> <port>.
 * Prints how many it has sent when its input ends.
 */
import { setImmediate } from 'node:timers/promises';
import { openDevice } from '@node-roce/verbs-api';

const [, , address, victim, port] = process.argv;
const device = await openDevice({ address, port: Number(port) });
const pd = await device.allocPd();
const cq = await device.createCq(64);
const qp = await pd.createQp({ type: 'UD', sendCq: cq, cap: { maxSendWr: 1024 } });
await qp.activate();
const mr = await pd.registerMr(new Uint8Array(64));
const ah = await pd.createAh({ gid: victim });

let over = false;
process.stdin.on('end', () => {
  over = true;
});
process.stdin.resume();
console.log('flooding');
let sent = 0;
while (!over) {
  while (qp.sendPending < 960) {
    qp.postSend({
      opcode: 'SEND',
      signaled: sent++ % 64 === 0,
      sgList: [{ mr, length: 64 }],
      ud: { ah, remoteQpn: 2, remoteQkey: 1 },
    });
  }
  cq.poll(64);
  await setImmediate();
}
console.log(sent);
await device.close();
