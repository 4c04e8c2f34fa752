/** PSNs and the NAK of a gap (IBTA vol 1 §9.7.2, §9.7.4.1.1). */
import { bytes, same } from '../device-side.ts';
import { rule } from '../rule.ts';
import type { Session } from '../session.ts';

export const psnRules = [
  rule(
    'PSN-01',
    {
      title: 'one NAK for a gap, with the first missing PSN, and only one',
      section: '9.7.4.1.1, 9.7.5.2.8',
      needs: ['rc', 'write'],
      text: 'The requester goes back once for each NAK. A NAK for every packet behind a gap multiplies a loss.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.write(0);
      await s.ack(0);
      for (const n of [2, 3, 4, 5]) s.write(n);
      await s.nak('sequence', 1, 'gap');
      await s.silence('packets behind the NAK');
      s.write(1);
      await s.ack(1, 'the missing packet');
      s.write(2);
      await s.ack(2);
    },
  ),
  rule(
    'PSN-02',
    {
      title: 'after a gap is mended, the next gap is NAKed anew',
      section: '9.7.4.1.1',
      needs: ['rc', 'write'],
      text: 'A responder that stays silent about a second loss costs the requester its whole timeout.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.write(1);
      await s.nak('sequence', 0, 'first gap');
      s.write(0);
      await s.ack(0);
      s.write(2);
      await s.nak('sequence', 1, 'second gap');
      s.write(1);
      await s.ack(1);
    },
  ),
  rule(
    'PSN-03',
    {
      title: 'a packet out of sequence has no effect',
      section: '9.7.4.1.1',
      needs: ['rc', 'write', 'memory'],
      text: 'Its requester sends it again in order. A WRITE that was executed early shows data before what came before it.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      const before = await s.peek(0, 64);
      s.write(1, bytes(64, 9));
      await s.nak('sequence', 0);
      t.want(same(before, await s.peek(0, 64)), 'memory was changed by a WRITE out of sequence');
    },
  ),
  rule(
    'PSN-04',
    {
      title: 'a repeated request is acknowledged while a NAK is out',
      section: '9.7.5.1.5',
      needs: ['rc', 'write'],
      text: 'The requester may have lost the ACK and not the NAK.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.write(0);
      await s.ack(0);
      s.write(2);
      await s.nak('sequence', 1);
      s.write(0);
      await s.ack(0, 'repetition');
    },
  ),
  rule(
    'PSN-05',
    {
      title: 'PSNs wrap from 0xffffff to 0',
      section: '9.7.2',
      needs: ['rc', 'write'],
      text: 'A connection crosses the wrap every 16.8 million packets: in seconds at 100 Gb/s.',
      first: true,
    },
    async (t) => {
      const s = await t.rc({ psn: 0xff_fffe });
      for (let n = 0; n < 5; n++) {
        s.write(n);
        await s.ack(n);
      }
      s.write(1);
      await s.ack(4, 'repetition from before the wrap');
      s.write(6);
      await s.nak('sequence', 5);
    },
  ),
  rule(
    'PSN-06',
    {
      title: 'the half of the PSNs behind is a repetition, the half ahead a gap',
      section: '9.7.4.1.1',
      needs: ['rc', 'write'],
      text: 'Two sides that disagree where the past ends answer old packets with NAKs.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.write(0);
      await s.ack(0);
      s.write(1 + 0x7f_ffff);
      await s.nak('sequence', 1, '2^23 - 1 ahead');
      s.write(1);
      await s.ack(1);
      s.write(2 - 0x80_0000);
      const answers = await s.all();
      t.want(
        !answers.some((entry) => entry.packet?.extensions.aeth?.syndrome === 0x60),
        '2^23 behind drew a sequence NAK',
      );
      await s.alive(2);
    },
  ),
  rule(
    'PSN-07',
    {
      title: 'a gap is NAKed alike before SEND, WRITE, READ and atomic',
      section: '9.7.4.1.1',
      needs: ['rc', 'write', 'read', 'atomic', 'receives'],
      text: 'The PSN is checked before anything that depends on the operation.',
    },
    async (t) => {
      const requests: Record<string, (s: Session) => unknown> = {
        SEND: (s) => s.sendOnly(1),
        WRITE: (s) => s.write(1),
        READ: (s) => s.read(1, 8),
        atomic: (s) => s.fetchAdd(1, 1n),
      };
      for (const [name, request] of Object.entries(requests)) {
        const s = await t.rc({ receives: 1 });
        request(s);
        await s.nak('sequence', 0, `gap before a ${name}`);
      }
    },
  ),
  rule(
    'PSN-11',
    {
      title: "the requester's PSNs wrap",
      section: '9.7.2',
      needs: ['rc', 'post', 'completions'],
      text: 'A connection crosses the wrap every 16.8 million packets: in seconds at 100 Gb/s.',
    },
    async (t) => {
      const s = await t.req({ devicePsn: 0xff_fffd, timeout: 20 });
      await s.post('send', { id: 1, length: 3072 + 64 });
      const sent = await s.requests(4);
      const psns = sent.map((entry) => entry.packet?.bth.psn).join(', ');
      t.want(psns === '16777214, 16777215, 0, 1', `PSNs ${psns || 'of no packet'}`);
      s.acknowledge(3);
      await s.completed(['1:SUCCESS'], 'SEND');
    },
  ),
];
