// Memory windows: a lease on part of a region. The owner binds a window to it, the peer writes there under the window's
// key and gives the lease back with SEND_WITH_INV; after that the key opens nothing, while the region stays registered.
import { openDevice } from 'node-roce';

async function open(address) {
  const device = await openDevice({ address });
  const pd = await device.allocPd();
  const cq = await device.createCq();
  return { device, pd, cq, qp: await pd.createQp({ sendCq: cq }) };
}

const owner = await open('127.0.46.1');
const tenant = await open('127.0.46.2');
await owner.qp.connect(tenant.qp.connectionData());
await tenant.qp.connect(owner.qp.connectionData());

// Peers have no rights to the region itself.
const region = await owner.pd.registerMr(new Uint8Array(4096), { access: { mwBind: true } });
const mw = await owner.pd.allocMw();
const write = async (text, rkey, addr) => {
  const sgList = [new TextEncoder().encode(text)];
  tenant.qp.postSend({ opcode: 'RDMA_WRITE', inline: true, signaled: true, sgList, remote: { addr, rkey } });
  return (await tenant.cq.next()).status;
};

for (const text of ['first lease', 'second lease']) {
  // Each lease has a key of its own: an old one does not open a new one.
  const bind = { mw, mr: region, offset: 1024, length: 64, access: { remoteWrite: true } };
  owner.qp.postSend({ opcode: 'BIND_MW', signaled: true, bind });
  await owner.cq.next();
  const { rkey } = mw;

  const { addr } = region.remote(1024);
  console.log(text, await write(text, rkey, addr));
  console.log(new TextDecoder().decode(region.bytes(1024, text.length)));
  owner.qp.postRecv({});
  tenant.qp.postSend({ opcode: 'SEND_WITH_INV', signaled: true, invalidateRkey: rkey });
  await tenant.cq.next();
  const { invalidatedRkey } = await owner.cq.next();
  console.log('given back:', invalidatedRkey === rkey);
}
console.log('without a lease:', await write('too late', mw.rkey, region.remote(1024).addr), tenant.qp.state);
await tenant.device.close();
await owner.device.close();
