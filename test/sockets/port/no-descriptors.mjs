/**
 * The behaviour of a device while no descriptor is left; open-failure.test.ts runs it under a low limit. `open ADDRESS ENGINE STEP`
 * opens with 0, STEP, 2 STEP, … descriptors left, until that is enough; `send ADDRESS ADDRESS` sends the first message of a pair.
 */
import { closeSync, openSync } from 'node:fs';
import { openDevice } from '@node-roce/verbs-api';

const held = [];
function useUp(left) {
  try {
    for (;;) held.push(openSync('/dev/null'));
  } catch {
    for (let i = 0; i < left && held.length > 0; i++) closeSync(held.pop());
  }
}
const giveBack = () => {
  for (const fd of held.splice(0)) closeSync(fd);
};

async function open(address, engine, step) {
  const options = { address, engine, link: 'udp' };
  await (await openDevice(options)).close(); // Modules are loaded, threads are there.
  const outcomes = [];
  for (let left = 0; outcomes.at(-1) !== 'opened' && left < 100; left += Number(step)) {
    useUp(left);
    try {
      await (await openDevice(options)).close();
      outcomes.push('opened');
    } catch (error) {
      outcomes.push(`${error.code} ${error.errno}`);
    }
    giveBack();
  }
  return outcomes;
}

async function side(address) {
  const device = await openDevice({ address, link: 'udp' });
  const pd = await device.allocPd();
  const cq = await device.createCq(16);
  const mr = await pd.registerMr(new Uint8Array(4096));
  return { device, cq, mr, qp: await pd.createQp({ sendCq: cq }) };
}

async function send(...addresses) {
  const [a, b] = [await side(addresses[0]), await side(addresses[1])];
  await b.qp.toInit();
  b.qp.postRecv({ sgList: [{ mr: b.mr }] });
  await a.qp.connect(b.qp.connectionData());
  await b.qp.connect(a.qp.connectionData());
  useUp(0);
  a.qp.postSend({ opcode: 'SEND', signaled: true, sgList: [{ mr: a.mr, offset: 0, length: 100 }] });
  const { status } = await a.cq.next();
  const { link } = await a.device.counters();
  giveBack();
  await a.device.close();
  await b.device.close();
  return { status, transmitSockets: link.transmitSockets };
}

const [what, ...args] = process.argv.slice(2);
console.log(JSON.stringify(await { open, send }[what](...args)));
process.exit(0);
