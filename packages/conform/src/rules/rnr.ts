/** Receiver not ready, at the responder and at the requester (IBTA vol 1 §9.7.5.2.8, §9.9.2.4.1). */
import { rnrTimerMicroseconds } from '@node-roce/wire';
import { bytes } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { type Rule, rule } from '../rule.ts';
import { CROSSING } from './crossing.ts';

/** The wait of one timer code, from the tester's NAK to the repetition: lateness can only lengthen it. */
function waits(id: string, code: number, first = false): Rule {
  const least = rnrTimerMicroseconds(code) / 1000;
  return rule(
    id,
    {
      title: `RNR NAK with timer code ${code}: waits at least ${least} ms, then retransmits the same`,
      section: '9.7.5.2.8',
      needs: ['rc', 'post', 'completions'],
      text: 'A requester that comes back early uses up its RNR retries while the receiver is still busy.',
      first,
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32, count: 2 });
      await s.requests(2);
      await s.all(10);
      const { time: start } = s.acknowledge(0, { syndrome: 0x20 | code });
      // A device that asks again early may have done so before the NAK reached it. One that does not wait at all is not heard of again.
      const isAgain = (entry: Entry) =>
        s.requestAt(entry) === 0 && entry.time - start >= Math.min(CROSSING, least / 2);
      const came = await s.allUntil(isAgain, least * 3 + 500);
      const again = came.find(isAgain);
      t.want(again !== undefined, `after the wait: wanted psn+0 again, got ${s.list(s.fresh(came))}`);
      if (again === undefined) return;
      t.want(again.time - start >= least, 'retransmitted before the time of the code');
      t.note(`retransmitted after ${(again.time - start).toFixed(2)} ms`);
      await s.all(10);
      s.acknowledge(1);
      await s.completed(['1:SUCCESS', '2:SUCCESS'], 'both SENDs');
    },
  );
}

export const rnrRules = [
  rule(
    'RNR-01',
    {
      title: 'a SEND without a receive draws an RNR NAK with its PSN and the timer asked for',
      section: '9.7.5.2.8',
      needs: ['rc', 'receives', 'attributes'],
      text: 'The timer is the receiver’s word on how long it needs.',
      first: true,
    },
    async (t) => {
      const s = await t.rc({ minRnrTimer: 14 });
      s.sendOnly(0);
      await s.nak({ rnr: 14 }, 0, 'no receive');
      await s.receive({ length: 64 });
      s.sendOnly(0);
      await s.ack(0, 'again with a receive');
    },
  ),
  rule(
    'RNR-02',
    {
      title: 'packets behind an RNR NAK are dropped in silence',
      section: '9.7.5.2.8',
      needs: ['rc'],
      text: 'A sequence NAK behind it may end the wait early.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      for (let n = 0; n < 4; n++) s.sendOnly(n);
      await s.nak({ rnr: s.spec.minRnrTimer }, 0, 'first');
      await s.silence('behind it');
    },
  ),
  rule(
    'RNR-03',
    {
      title: 'a WRITE with immediate without a receive draws an RNR NAK; repeated, it completes one',
      section: '9.7.5.2.8',
      needs: ['rc', 'write', 'receives', 'completions'],
      text: 'It takes a receive with its last packet.',
    },
    async (t) => {
      const s = await t.rc();
      s.writeImmediate(0, 7);
      await s.nak({ rnr: s.spec.minRnrTimer }, 0, 'no receive');
      await s.receive({ id: 1, length: 0 });
      s.writeImmediate(0, 0xdead_beef);
      await s.ack(0, 'again with a receive');
      const [completion] = await s.completed(['1:SUCCESS'], 'WRITE with immediate');
      t.want(completion?.immediate === 0xdead_beef, 'wrong immediate data');
      t.want(completion?.length === 8, `length ${completion?.length}, wanted 8`);
    },
  ),
  rule(
    'RNR-04',
    {
      title: 'a SEND takes its receive with its first packet: that one draws the RNR NAK',
      section: '9.7.5.2.8',
      needs: ['rc', 'receives', 'completions'],
      text: 'The packets behind it need a place when they come. A refusal of the last one would throw a whole message away.',
    },
    async (t) => {
      const s = await t.rc({ receives: 1 });
      const message = async (n: number, of: string) => {
        s.send('RC_SEND_FIRST', n, { payload: bytes(1024, n) });
        s.follow('RC_SEND_LAST', n + 1, bytes(8));
        await s.ack(n + 1, of);
      };
      await message(0, 'a SEND of two packets');
      s.send('RC_SEND_FIRST', 2, { payload: bytes(1024, 2), ackReq: true });
      await s.nak({ rnr: s.spec.minRnrTimer }, 2, 'a FIRST without a receive');
      await s.receive({ id: 7, length: 4096 });
      await message(2, 'the same with a receive');
      await s.completed(['1000:SUCCESS', '7:SUCCESS'], 'both SENDs');
    },
  ),
  rule(
    'RNR-06',
    {
      title: 'each of the 32 timer codes is sent as it was set',
      section: '9.7.5.2.8',
      needs: ['rc', 'attributes'],
      text: 'Code 0 is the longest time, not the shortest.',
    },
    async (t) => {
      for (let code = 0; code < 32; code++) {
        const s = await t.rc({ minRnrTimer: code });
        s.sendOnly(0);
        await s.nak({ rnr: code }, 0, `code ${code}`);
        await s.close();
      }
    },
  ),
  rule(
    'RNR-07',
    {
      title: 'a SEND behind a refused WRITE with immediate is not executed',
      section: '9.7.5.2.8',
      needs: ['rc', 'write', 'receives', 'completions'],
      text: 'The receive posted meanwhile belongs to the message that came first.',
    },
    async (t) => {
      const s = await t.rc();
      s.writeImmediate(0, 7);
      await s.nak({ rnr: s.spec.minRnrTimer }, 0, 'no receive');
      await s.receive({ id: 1, length: 64 });
      s.sendOnly(1);
      await s.noCompletion('a SEND behind the RNR NAK');
    },
  ),
  waits('RNR-11', 1),
  waits('RNR-12', 12),
  waits('RNR-13', 20, true),
  waits('RNR-14', 26),
  rule(
    'RNR-15',
    {
      title: 'as many RNR NAKs as rnr_retry are forgiven, the next ends the connection',
      section: '9.9.2.4.1',
      needs: ['rc', 'post', 'completions'],
      text: 'The program chose how long a slow receiver may take.',
      first: true,
    },
    async (t) => {
      const s = await t.req({ timeout: 20, rnrRetry: 2 });
      await s.post('send', { id: 1, length: 32 });
      let sent = 0;
      let refused = Number.NEGATIVE_INFINITY;
      // Behind the third NAK, nothing more is waited for: a device that goes on has no completion.
      while (sent < 3) {
        const entry = await s.next();
        if (entry === undefined) break;
        // A device that asks again early, before the NAK or while it is on its way, draws no second one.
        if (entry.time - refused < 40) continue;
        sent++;
        await s.all(CROSSING);
        refused = s.acknowledge(0, { syndrome: 0x20 | 26 }).time;
      }
      t.want(sent === 3, `${sent} sends with rnr_retry 2, wanted 3`);
      await s.completed(['1:RNR_RETRY_EXC_ERR'], 'RNR retries used up');
    },
  ),
  rule(
    'RNR-16',
    {
      title: 'rnr_retry 7 is without end',
      section: '9.9.2.4.1',
      needs: ['rc', 'post', 'completions'],
      text: 'Programs that wait for their peer by design use it.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20, rnrRetry: 7 });
      await s.post('send', { id: 1, length: 32 });
      let sent = 0;
      // A device that stands still for a while has not ended.
      while (sent < 20 && (await s.next(4 * t.waits.patience)) !== undefined) {
        sent++;
        s.acknowledge(0, { syndrome: 0x21 });
      }
      if (sent === 20) return;
      t.note(`RNR NAKs: ${sent}`);
      const [completion] = await s.completions(1);
      t.want(false, `it ended before 20 RNR NAKs, with ${completion?.status ?? 'silence'}`);
    },
  ),
  rule(
    'RNR-17',
    {
      title: 'a sequence NAK during the wait does not shorten it',
      section: '9.7.5.2.8',
      should: true,
      needs: ['rc', 'post', 'completions'],
      text: 'Responders that answer what follows an RNR NAK with a sequence NAK exist.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32, count: 2 });
      await s.requests(2);
      await s.all(10);
      const { time: start } = s.acknowledge(0, { syndrome: 0x20 | 25 });
      s.acknowledge(0, { syndrome: 0x60 });
      const came = await s.allUntil((entry) => s.requestAt(entry) === 0, 500);
      const again = came.find((entry) => s.requestAt(entry) === 0);
      t.want(again !== undefined, 'no retransmission');
      if (again === undefined) return;
      t.want(
        again.time - start >= rnrTimerMicroseconds(25) / 1000,
        'retransmitted before the time of the code',
      );
    },
  ),
  rule(
    'RNR-18',
    {
      title: 'progress restores rnr_retry',
      section: '9.9.2.4.1',
      needs: ['rc', 'post', 'completions'],
      text: 'The budget is for one message, not for the life of the connection.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20, rnrRetry: 1 });
      await s.post('send', { id: 1, length: 32, count: 3 });
      await s.requests(3);
      for (let i = 0; i < 3; i++) {
        s.acknowledge(i, { syndrome: 0x21 });
        await s.next(400);
        await s.all(30);
        s.acknowledge(i);
      }
      await s.completed(['1:SUCCESS', '2:SUCCESS', '3:SUCCESS'], 'three SENDs, each refused once');
    },
  ),
  rule(
    'RNR-19',
    {
      title: 'an RNR NAK within a message: after the wait, the requester goes on from there',
      section: '9.7.5.2.8',
      should: true,
      needs: ['rc', 'post', 'completions'],
      text: 'No responder has to send it there. One that does has the beginning of the message.',
    },
    async (t) => {
      const code = 26;
      const least = rnrTimerMicroseconds(code) / 1000;
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 2051 });
      await s.requests(3);
      await s.all(CROSSING);
      const { time: start } = s.acknowledge(1, { syndrome: 0x20 | code });
      // A device that asks again early may have done so before the NAK reached it.
      const isLater = (entry: Entry) => entry.time - start >= 4 * CROSSING;
      const came = await s.allUntil((entry) => isLater(entry) && s.requestAt(entry) === 2, least * 3 + 500);
      const again = s.fresh(came.filter(isLater));
      const [first] = again;
      t.want(
        first?.packet?.info.key === 'RC_SEND_MIDDLE' && s.requestAt(first) === 1,
        `goes on with ${s.describe(first)}`,
      );
      t.want(first === undefined || first.time - start >= least, 'retransmitted before the time of the code');
      t.want(s.requestAt(again.at(-1)) === 2, 'does not go on to the end');
      s.acknowledge(2);
      await s.completed(['1:SUCCESS'], 'SEND');
    },
  ),
  rule(
    'RNR-20',
    {
      title: 'an RNR NAK for a PSN that was not sent is ignored',
      section: '9.9.2.2',
      needs: ['rc', 'post', 'completions'],
      text: 'It acknowledges everything before its PSN: taken, it reports lost data as sent.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32 });
      await s.next();
      s.acknowledge(7, { syndrome: 0x21 });
      // A request completes once.
      if (!(await s.noCompletion('RNR NAK of a PSN not sent', 100))) return;
      s.acknowledge(0);
      await s.completed(['1:SUCCESS'], 'then the ACK');
    },
  ),
];
