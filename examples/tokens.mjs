// A server that admits each client by its token, compared in constant time. The server also changes the key of its memory:
// a copied R_Key works only until the next change.
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { CmId } from 'node-roce/rdmacm';

const TOKEN = 32; // Bytes; the number of the client (4 bytes) comes before it. A request carries 56 bytes at most.
const tokens = new Map([[7, randomBytes(TOKEN)]]);
const nobody = randomBytes(TOKEN);

/** Takes the same time for an unknown client, a wrong token and a right one. */
function isAdmitted(privateData) {
  const bytes = Buffer.from(privateData);
  const token = tokens.get(bytes.readUInt32BE(0));
  const isEqual = timingSafeEqual(bytes.subarray(4, 4 + TOKEN), token ?? nobody);
  return isEqual && token !== undefined;
}

function keyBytes({ addr, rkey }) {
  const bytes = Buffer.alloc(12);
  bytes.writeBigUInt64BE(addr, 0);
  bytes.writeUInt32BE(rkey, 8);
  return bytes;
}
const keyOf = (bytes) => ({ addr: bytes.readBigUInt64BE(0), rkey: bytes.readUInt32BE(8) });

/** The objects of a connection. */
async function equip(id) {
  const pd = await id.device.allocPd();
  const cq = await id.device.createCq(16);
  return { pd, cq, qp: await id.createQp(pd, { sendCq: cq }) };
}

// The server.
const memory = new TextEncoder().encode('for clients with a token');
const listener = new CmId();
await listener.listen({ address: '127.0.46.1', port: 7471 });
let rotate;
const serving = (async () => {
  for await (const request of listener) {
    if (!isAdmitted(request.request.privateData)) {
      await request.reject();
      await request.destroy();
      continue;
    }
    const { pd, qp } = await equip(request);
    let region = await pd.registerMr(memory, { access: { remoteRead: true } });
    await request.accept({ privateData: keyBytes(region.remote()) });
    request.disconnected.then(() => request.destroy());
    // The client gets the new key before the server withdraws the old key, so no READ fails.
    rotate = async () => {
      const next = await pd.registerMr(memory, { access: { remoteRead: true } });
      await qp.send([keyBytes(next.remote())]);
      await region.deregister();
      region = next;
    };
  }
})();

// A client.
async function join(client, token) {
  const id = new CmId();
  await id.resolveAddr({ host: '127.0.46.1', port: 7471, source: '127.0.46.2' });
  await id.resolveRoute();
  const { pd, qp } = await equip(id);
  const mr = await pd.registerMr(new Uint8Array(64));
  const newKey = qp.receive({ mr, offset: 0, length: 12 });
  newKey.catch(() => {}); // It rejects if the server refuses the client.
  const credentials = Buffer.alloc(4 + TOKEN);
  credentials.writeUInt32BE(client, 0);
  credentials.set(token, 4);
  try {
    await id.connect({ privateData: credentials });
  } catch (error) {
    await id.destroy();
    throw error;
  }
  const read = async (key) => {
    await qp.read({ mr, offset: 16, length: memory.length }, key);
    return new TextDecoder().decode(mr.bytes(16, memory.length));
  };
  const nextKey = async () => {
    await newKey;
    return keyOf(Buffer.from(mr.bytes(0, 12)));
  };
  return { id, read, nextKey, key: keyOf(Buffer.from(id.replyData)) };
}

for (const [client, token] of [
  [7, randomBytes(TOKEN)],
  [8, nobody],
])
  await join(client, token).catch(({ reason }) => console.log(`client ${client}: ${reason}`));

const { id, read, nextKey, key } = await join(7, tokens.get(7));
console.log(await read(key));
await rotate();
const next = await nextKey();
console.log(`another key: ${next.rkey !== key.rkey}; ${await read(next)}`);
console.log(`the old key: ${await read(key).catch(({ attribute }) => attribute)}`);

await id.destroy();
await listener.destroy();
await serving.catch(() => {});
