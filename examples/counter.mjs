// Atomics: many clients count in one 64-bit word of the server's memory, and one takes a lock, with no program at the
// server's side.
import { openDevice } from 'node-roce';

const server = await openDevice({ address: '127.0.43.1' });
const serverPd = await server.allocPd();
const serverCq = await server.createCq();
// Word 0 counts, word 1 is a lock: 0, or who has it. Addresses of atomics are multiples of 8.
const words = await serverPd.registerMr(new BigUint64Array(2), { access: { remoteAtomic: true } });

async function join(n) {
  const device = await openDevice({ address: `127.0.43.${10 + n}` });
  const pd = await device.allocPd();
  const cq = await device.createCq();
  const qp = await pd.createQp({ sendCq: cq });
  const peer = await serverPd.createQp({ sendCq: serverCq });
  await qp.connect(peer.connectionData());
  await peer.connect(qp.connectionData());
  const before = new BigUint64Array(1);
  const sgList = [{ mr: await pd.registerMr(before) }];
  /** Carries the operation out there, and returns the value before. */
  const atomic = async (opcode, word, operands) => {
    qp.postSend({ opcode, signaled: true, sgList, remote: words.remote(8 * word), ...operands });
    const { status } = await cq.next();
    if (status !== 'SUCCESS') throw new Error(status);
    return before[0];
  };
  return {
    device,
    count: () => atomic('ATOMIC_FETCH_AND_ADD', 0, { compareAdd: 1n }),
    lock: () => atomic('ATOMIC_CMP_AND_SWP', 1, { compareAdd: 0n, swap: BigInt(n) }),
  };
}

const clients = await Promise.all([1, 2, 3, 4].map(join));
const tickets = await Promise.all(
  clients.map(async (client) => {
    const mine = [];
    for (let i = 0; i < 25; i++) mine.push(await client.count());
    return mine;
  }),
);
const [count, owner] = new BigUint64Array(words.buffer);
console.log(`counted ${count}, ${new Set(tickets.flat()).size} different tickets; the lock is with ${owner}`);

const found = await Promise.all(clients.map((client) => client.lock()));
console.log(`${found.filter((before) => before === 0n).length} of ${clients.length} got the lock`);
for (const { device } of clients) await device.close();
await server.close();
