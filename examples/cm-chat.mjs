// A chat over an IPv4 multicast group, with the group address and Q_Key that Linux's rdma_cm (and mckey) use. Each
// member gets every datagram, also its own, unless the network loses it.

import { GRH_BYTES } from 'node-roce';
import { CmId } from 'node-roce/rdmacm';

const GROUP = '239.77.1.42';
const BYTES = 256;

/** Joins the group on a local address; returns functions that send a text, and receive one. */
async function join(address) {
  const id = new CmId({ portSpace: 'UDP' });
  await id.bindAddr(address);
  const pd = await id.device.allocPd();
  const qp = await id.createQp(pd, { sendCq: await id.device.createCq() });
  const inbox = await pd.registerMr(new Uint8Array(GRH_BYTES + BYTES));
  const ud = await id.joinMulticast(GROUP);
  return {
    say: (text) => qp.send(new TextEncoder().encode(text), { ud }),
    async hear() {
      const { byteLen } = await qp.receive(inbox);
      return new TextDecoder().decode(inbox.bytes(GRH_BYTES, byteLen - GRH_BYTES));
    },
    leave: () => id.destroy(),
  };
}

const members = [await join('127.0.45.1'), await join('127.0.45.2')];
for (const [i, text] of ['hello, who is there?', 'me'].entries()) {
  const heard = members.map((member) => member.hear());
  await members[i].say(text);
  console.log((await Promise.all(heard)).map((line) => `"${line}"`).join(' '));
}
for (const member of members) await member.leave();
