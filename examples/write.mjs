import { openDevice } from 'node-roce';

// Two devices of one program; the peer may as well be an rdma_rxe on another machine.
const a = await openDevice({ address: '127.0.0.1' });
const b = await openDevice({ address: '127.0.0.2' });

const [pdA, pdB] = [await a.allocPd(), await b.allocPd()];
const [cqA, cqB] = [await a.createCq(), await b.createCq()];
const [qpA, qpB] = [await pdA.createQp({ sendCq: cqA }), await pdB.createQp({ sendCq: cqB })];
await qpA.connect(qpB.connectionData());
await qpB.connect(qpA.connectionData());

const source = await pdA.registerMr(new TextEncoder().encode('written from afar'));
const target = await pdB.registerMr(new Uint8Array(64), { access: { remoteWrite: true } });
qpA.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr: source }], remote: target.remote() });
console.log((await cqA.next()).status, new TextDecoder().decode(target.bytes(0, 17)));

await a.close();
await b.close();
