// RDMA WRITE and READ: a table in the server's memory, which the server's program never touches. Clients write rows,
// and name by immediate data the row that they wrote; and read rows.
import { openDevice } from 'node-roce';

const ROW = 64;
const server = await openDevice({ address: '127.0.42.1' });
const serverPd = await server.allocPd();
const serverCq = await server.createCq();
const serverQp = await serverPd.createQp({ sendCq: serverCq });
const table = await serverPd.registerMr(new Uint8Array(100 * ROW), {
  access: { remoteWrite: true, remoteRead: true },
});

const client = await openDevice({ address: '127.0.42.2' });
const pd = await client.allocPd();
const cq = await client.createCq();
const qp = await pd.createQp({ sendCq: cq });
await serverQp.connect(qp.connectionData());
await qp.connect(serverQp.connectionData());
// Immediate data takes a receive, with no room for bytes: they go to the address of the WRITE.
for (let i = 0; i < 100; i++) serverQp.postRecv({});

const buffer = await pd.registerMr(new Uint8Array(2 * ROW));
const mine = { mr: buffer, length: ROW };
const read = { mr: buffer, offset: ROW, length: ROW };

buffer.bytes().set(new TextEncoder().encode('row seventeen'));
qp.postSend({
  opcode: 'RDMA_WRITE_WITH_IMM',
  immData: 17,
  sgList: [mine],
  remote: table.remote(17 * ROW),
});
const told = await serverCq.next();
console.log(`${told.opcode}: row ${told.immData}, ${told.byteLen} bytes`);

// Requests of one queue pair are carried out in order, so the READ sees what the WRITE before it wrote.
buffer.bytes().set(new TextEncoder().encode('row eighteen '));
qp.postSend([
  { opcode: 'RDMA_WRITE', inline: true, sgList: [mine], remote: table.remote(18 * ROW) },
  { opcode: 'RDMA_READ', signaled: true, sgList: [read], remote: table.remote(18 * ROW) },
]);
console.log((await cq.next()).status, new TextDecoder().decode(buffer.bytes(ROW, 12)));

// A READ beyond the table is refused by the server's adapter, and the queue pair is in error.
qp.postSend({ opcode: 'RDMA_READ', sgList: [read], remote: table.remote(100 * ROW) });
console.log((await cq.next()).status, qp.state);
await client.close();
await server.close();
