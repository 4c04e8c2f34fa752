// A chat for a terminal: chat.mjs ADDRESS NAME, on any number of machines of a network. Each typed line goes to all.
import { createInterface } from 'node:readline';
import { GRH_BYTES } from 'node-roce';
import { CmId } from 'node-roce/rdmacm';

const [address, name] = process.argv.slice(2);
if (!name) {
  console.error('usage: chat.mjs ADDRESS NAME');
  process.exit(2);
}
const GROUP = '239.77.1.43';
const BYTES = 1024; // The path MTU of a network of 1500 bytes: a datagram is one packet.
const RECEIVES = 16;

const id = new CmId({ portSpace: 'UDP' });
await id.bindAddr(address);
const pd = await id.device.allocPd();
const cq = await id.device.createCq(64);
// Texts are in no region, so they are sent inline: that needs room in the queue.
const sendCq = await id.device.createCq(64);
const qp = await id.createQp(pd, { sendCq, recvCq: cq, cap: { maxInlineData: BYTES } });

// Datagrams that find no receive are lost, so several are posted before the group is joined. The first 40 bytes of each
// receive are for the sender's IP header.
const slot = GRH_BYTES + BYTES;
const inbox = await pd.registerMr(new Uint8Array(RECEIVES * slot));
const post = (i) => qp.postRecv({ wrId: i, sgList: [{ mr: inbox, offset: i * slot, length: slot }] });
for (let i = 0; i < RECEIVES; i++) post(i);
const ud = await id.joinMulticast(GROUP);

async function say(text) {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length > BYTES) console.error(`not sent: more than ${BYTES} bytes`);
  else await qp.send(bytes, { ud });
}

async function hear() {
  for await (const { wrIdNumber, byteLen, srcQp } of cq) {
    const bytes = inbox.bytes(wrIdNumber * slot + GRH_BYTES, byteLen - GRH_BYTES);
    // The group also returns this side's own datagrams: leave them out.
    // Anybody may send to a group, so remove control characters before printing.
    if (srcQp !== qp.qpNum) console.log(new TextDecoder().decode(bytes).replace(/\p{Cc}/gu, '?'));
    post(wrIdNumber);
  }
}
const hearing = hear();

await say(`* ${name} is here`);
for await (const line of createInterface({ input: process.stdin })) await say(`${name}: ${line}`);
await say(`* ${name} has left`);
await id.destroy();
await hearing;
