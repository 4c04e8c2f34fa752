// UD: one queue pair talks to many. A question goes to a multicast group; each member answers the sender, whose
// address stands in the 40 bytes before the question.
import { GRH_BYTES, openDevice } from 'node-roce';

const GROUP = '239.1.2.44';
const SLOT = 128;

async function open(address) {
  const device = await openDevice({ address });
  const pd = await device.allocPd();
  const cq = await device.createCq();
  const qp = await pd.createQp({ type: 'UD', sendCq: cq });
  await qp.activate({ qkey: 0x1111_1111 });
  const inbox = await pd.registerMr(new Uint8Array(8 * SLOT));
  for (let i = 0; i < 8; i++)
    qp.postRecv({ wrId: i, sgList: [{ mr: inbox, offset: i * SLOT, length: SLOT }] });
  return {
    device,
    pd,
    cq,
    qp,
    header: (wc) => inbox.bytes(wc.wrIdNumber * SLOT, GRH_BYTES),
    text: (wc) =>
      new TextDecoder().decode(inbox.bytes(wc.wrIdNumber * SLOT + GRH_BYTES, wc.byteLen - GRH_BYTES)),
    send: (text, ah, remoteQpn) =>
      qp.postSend({
        opcode: 'SEND',
        inline: true,
        sgList: [new TextEncoder().encode(text)],
        ud: { ah, remoteQpn, remoteQkey: 0x1111_1111 },
      }),
  };
}

const asker = await open('127.0.44.1');
const members = await Promise.all([2, 3, 4].map((n) => open(`127.0.44.${n}`)));

await Promise.all(
  members.map(async (member, i) => {
    await member.qp.attachMcast(GROUP);
    member.cq.next().then(async (wc) => {
      const back = await member.pd.createAhFromWc(wc, member.header(wc));
      member.send(`${member.text(wc)} ${i + 2}`, back, wc.srcQp);
    });
  }),
);
// Every member of a group is reached under the same QPN.
asker.send('here is', await asker.pd.createAh({ gid: GROUP }), 0xff_ffff);
const answers = [];
for (let i = 0; i < members.length; i++) answers.push(asker.text(await asker.cq.next()));
console.log(answers.sort().join(', '));
for (const { device } of [asker, ...members]) await device.close();
