/**
 * A program that prints the events of its interface, a line of JSON each. Arguments: `device` and options of
 * `openDevice`, or `watch`, a name and options of `watchInterface`, or `hold` and an address. From its input it takes `write N`, for an RDMA WRITE to
 * itself from GID index N to GID index N, and `counters`; at the end of the input it ends.
 */
import { createSocket } from 'node:dgram';
import { createInterface } from 'node:readline';
import { watchInterface } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';

const [what, ...args] = process.argv.slice(2);
const say = (message) => console.log(JSON.stringify(message));

async function watch(name, options) {
  const watch = await watchInterface(name, say, JSON.parse(options));
  say({ type: 'ready', how: watch.how });
  // It keeps no process alive: the input does.
  process.stdin.on('end', () => watch.close()).resume();
}

async function write(device, gidIndex) {
  const pd = await device.allocPd();
  const cq = await device.createCq();
  const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(64)), {
    access: { remoteWrite: true },
  });
  const [a, b] = [await pd.createQp({ sendCq: cq }), await pd.createQp({ sendCq: cq })];
  const [ofA, ofB] = [a, b].map((qp) => qp.connectionData({ gidIndex }));
  await a.connect(ofB, { timeout: 10, retryCnt: 2 });
  await b.connect(ofA, { timeout: 10, retryCnt: 2 });
  a.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr }], remote: mr.remote() });
  const { status } = await cq.next();
  for (const qp of [a, b]) await qp.close();
  return status;
}

async function device(options) {
  const device = await openDevice({ port: 4791, ...JSON.parse(options) });
  const state = () => ({
    gids: device.gids.map(({ address }) => address),
    portState: device.query().portState,
  });
  device.onEvent((event) => say({ ...event, ...state() }));
  say({ type: 'ready', ...state() });
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, index] = line.split(' ');
    const result =
      command === 'write'
        ? await write(device, Number(index)).catch(({ attribute }) => attribute)
        : (await device.counters()).rxe.link_downed;
    say({ type: 'done', result });
  }
  await device.close();
}

/** Holds UDP port 4791 of an address. */
function hold(address) {
  const socket = createSocket('udp4').bind(4791, address, () => say({ type: 'ready' }));
  process.stdin.on('end', () => socket.close()).resume();
}

process.on('warning', ({ code, message }) => say({ type: 'warning', code, message }));
await { watch, device, hold }[what](...args);
