/** The requester of a reliable connection: packets of a message, timers, NAKs (IBTA vol 1 §9.7.3, §9.7.6, §9.9.2). */
import { ackTimeoutMicroseconds } from '@node-roce/wire';
import { same } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { type Rule, rule } from '../rule.ts';
import type { Session } from '../session.ts';
import { CROSSING } from './crossing.ts';

/** 4.096 µs · 2^code, in ms. */
const timeoutOf = (code: number): number => ackTimeoutMicroseconds(code) / 1000;

/** Where the device writes in memory of the tester. */
const REMOTE = { va: 4096n, rkey: 1 };

/** A NAK that ends the connection with a status of its own. */
function ends(id: string, name: string, syndrome: number, status: string, first = false): Rule {
  return rule(
    id,
    {
      title: `NAK ${name}: the request fails with ${status}, those behind it are flushed in order`,
      section: '9.9.2.4.2, 10.3.1.7',
      needs: ['rc', 'post', 'completions', 'state'],
      text: 'The program learns which of its requests the peer refused.',
      first,
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('write', { id: 1, length: 32, count: 3, remote: REMOTE });
      await s.requests(3);
      s.acknowledge(1, { syndrome });
      await s.completed(['1:SUCCESS', `2:${status}`, '3:WR_FLUSH_ERR'], 'three WRITEs');
      const state = await s.state();
      t.want(state === 'ERR', `state ${state}, wanted ERR`);
      // A repetition may have crossed the NAK.
      await s.all(10);
      await s.silence('in the error state');
    },
  );
}

/** Packets but repetitions of the last one in front: a device that asks again early may have sent those before an answer reached it. */
function behindProbes(s: Session, entries: readonly Entry[], last: number): readonly Entry[] {
  return entries.slice(
    Math.max(
      0,
      entries.findIndex((entry) => s.requestAt(entry) !== last),
    ),
  );
}

export const requesterRules = [
  rule(
    'REQ-01',
    {
      title: 'a message is cut at the path MTU into FIRST, MIDDLE and LAST, which asks for an ACK',
      section: '9.7.3.1, 9.7.4.1.6',
      needs: ['rc', 'post', 'completions'],
      text: 'A responder refuses packets of other lengths, and may answer none without AckReq.',
      first: true,
    },
    async (t) => {
      const s = await t.req();
      await s.post('send', { id: 1, length: 2051 });
      const sent = await s.requests(3);
      const names = sent.map((e) => e.packet?.info.key).join(', ');
      t.want(names === 'RC_SEND_FIRST, RC_SEND_MIDDLE, RC_SEND_LAST', `sent ${names || 'nothing'}`);
      t.want(
        sent.every((e, i) => s.requestAt(e) === i),
        'PSNs are not in order',
      );
      const lengths = sent.map((e) => e.packet?.payload.length).join(', ');
      t.want(lengths === '1024, 1024, 3', `lengths ${lengths}`);
      const last = sent.at(-1)?.packet?.bth;
      t.want(last?.pad === 1, `pad count ${last?.pad}`);
      t.want(last?.ackReq === true, 'the LAST asks for no ACK');
      t.want(
        sent.every((e) => e.packet?.icrcStatus === 'ok'),
        'wrong ICRC',
      );
      s.acknowledge(2);
      await s.completed(['1:SUCCESS'], 'SEND');
    },
  ),
  rule(
    'REQ-02',
    {
      title: 'RETH in the first packet of a WRITE, immediate data and SE in the last',
      section: '9.4.3, 9.2.3',
      needs: ['rc', 'post', 'completions'],
      text: 'The responder checks the whole range with the first packet.',
    },
    async (t) => {
      const s = await t.req();
      const remote = { va: 0x12_3456_789an, rkey: 77 };
      await s.post('write_imm', { id: 1, length: 2048, remote, immediate: 0xabcd, solicited: true });
      const [first, last] = (await s.requests(2)).map((e) => e.packet);
      const reth = first?.extensions.reth;
      t.want(first?.info.key === 'RC_RDMA_WRITE_FIRST', `begins with ${first?.info.key}`);
      t.want(reth?.va === remote.va && reth.rkey === 77 && reth.length === 2048, 'RETH is not the request’s');
      t.want(last?.info.key === 'RC_RDMA_WRITE_LAST_WITH_IMMEDIATE', `ends with ${last?.info.key}`);
      t.want(last?.extensions.immDt === 0xabcd, 'wrong immediate data');
      t.want(first?.bth.solicited === false && last?.bth.solicited === true, 'SE is not on the last alone');
      s.acknowledge(1);
      await s.completed(['1:SUCCESS'], 'WRITE');
    },
  ),
  rule(
    'REQ-04',
    {
      title: 'a SEND and a WRITE of 0 bytes are sent and completed',
      section: '9.4',
      needs: ['rc', 'post', 'completions'],
      text: 'Programs use them as signals.',
    },
    async (t) => {
      const s = await t.req();
      await s.post('send', { id: 1, length: 0 });
      await s.post('write', { id: 2, length: 0, remote: REMOTE });
      const sent = await s.requests(2);
      const names = sent.map((e) => e.packet?.info.key).join(', ');
      t.want(names === 'RC_SEND_ONLY, RC_RDMA_WRITE_ONLY', `sent ${names || 'nothing'}`);
      t.want(
        sent.every((e) => e.packet?.payload.length === 0),
        'a payload where there is nothing to send',
      );
      s.acknowledge(1);
      await s.completed(['1:SUCCESS', '2:SUCCESS'], 'both');
    },
  ),
  rule(
    'REQ-05',
    {
      title: 'a fenced request waits for the READ before it',
      section: '10.8.3.3',
      needs: ['rc', 'post', 'completions', 'fence'],
      text: 'It may depend on what the READ brings.',
    },
    async (t) => {
      t.use('fence');
      const s = await t.req({ timeout: 20 });
      await s.post('read', { id: 1, length: 64, offset: 8192, remote: REMOTE });
      await s.post('send', { id: 2, length: 8, fence: true });
      const before = s.fresh(await s.all());
      t.want(before.length === 1, `before the response: ${s.list(before)}, wanted the READ alone`);
      s.respond(0, new Uint8Array(64));
      const came = await s.allUntil((entry) => s.requestAt(entry) === 1);
      t.want(
        came.some((entry) => s.requestAt(entry) === 1),
        'no SEND after the response',
      );
      s.acknowledge(1);
      await s.completed(['1:SUCCESS', '2:SUCCESS'], 'both');
    },
  ),
  rule(
    'REQ-06',
    {
      title: 'UDP source port, TTL and traffic class of a connection stay the same',
      section: 'A17.3',
      should: true,
      needs: ['rc', 'post', 'completions', 'frames'],
      text: 'Switches choose the path by them: another path brings packets out of order.',
    },
    async (t) => {
      t.use('frames');
      const s = await t.req({ timeout: 20 });
      await s.post('write', { id: 1, length: 8192, remote: REMOTE });
      await s.requests(8);
      s.acknowledge(2, { syndrome: 0x60 });
      await s.all();
      s.acknowledge(7);
      await s.completed(['1:SUCCESS'], 'WRITE');
      const seen = t.entries.flatMap(({ from, packet }) =>
        from === 'device' && packet?.ip.version === 4
          ? [`${packet.udp?.sourcePort} ${packet.ip.ttl} ${packet.ip.tos}`]
          : [],
      );
      t.want(new Set(seen).size === 1, 'they change');
    },
  ),
  rule(
    'REQ-07',
    {
      title: 'a READ takes as many PSNs as it has responses',
      section: '9.7.3.2',
      needs: ['rc', 'post', 'completions'],
      text: 'The responder counts them in the same way: otherwise the next request is a gap or a repetition.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('read', { id: 1, length: 2049, offset: 8192, remote: REMOTE });
      await s.post('send', { id: 2, length: 8 });
      const psns = (await s.requests(2)).map((e) => s.requestAt(e)).join(', ');
      t.want(psns === '0, 3', `READ of three responses and SEND at ${psns}, wanted 0, 3`);
    },
  ),
  rule(
    'TMO-01',
    {
      title: 'the timer fires between T = 4.096 µs · 2^timeout and 4 T',
      section: '9.7.6.1.3',
      needs: ['rc', 'post', 'completions'],
      text: 'Repetitions that come early load a path that is only slow.',
      first: true,
    },
    async (t) => {
      const timeout = 15;
      const s = await t.req({ timeout, retryCnt: 3 });
      // Measured from the order to send: a first packet that is noted late would shorten the interval.
      const start = t.line.now();
      await s.post('send', { id: 1, length: 64 });
      const first = await s.next();
      const again = await s.next(2000);
      t.want(again !== undefined, 'no repetition');
      if (first?.packet === undefined || again?.packet === undefined) return;
      const interval = again.time - start;
      t.note(`repeated after ${interval.toFixed(1)} ms; T is ${timeoutOf(timeout).toFixed(1)} ms`);
      t.want(interval >= timeoutOf(timeout), 'repeated before T');
      t.want(interval <= 4 * timeoutOf(timeout) + t.waits.slack, 'repeated after 4 T only');
      t.want(s.requestAt(again) === 0 && same(first.packet.payload, again.packet.payload), 'another packet');
    },
  ),
  rule(
    'TMO-02',
    {
      title: 'a request that nobody answers is sent 1 + retry_cnt times, then fails',
      section: '9.9.2.1',
      needs: ['rc', 'post', 'completions', 'state'],
      text: 'The program chose how long a silent peer may take.',
      first: true,
    },
    async (t) => {
      const s = await t.req({ timeout: 13, retryCnt: 3 });
      await s.post('send', { id: 1, length: 64 });
      await s.completed(['1:RETRY_EXC_ERR'], 'retries used up', 2500);
      const sent = (await s.all(1)).length;
      t.want(sent === 4, `${sent < 4 ? 'fewer' : 'more'} than 4 sends with retry_cnt 3`);
      t.note(`${sent} sends`);
      const state = await s.state();
      t.want(state === 'ERR', `state ${state}, wanted ERR`);
    },
  ),
  rule(
    'TMO-03',
    {
      title: 'progress restores the retries',
      section: '9.9.2.4.1',
      needs: ['rc', 'post', 'completions'],
      text: 'The budget is for one packet, not for the life of the connection.',
    },
    async (t) => {
      const s = await t.req({ timeout: 14, retryCnt: 1 });
      await s.post('send', { id: 1, length: 2048 });
      // A tester that is late may notice the repetition together with the two packets.
      t.want((await s.collect(3)).length === 3, 'no repetition');
      const { time: start } = s.acknowledge(0);
      // A repetition of both may have crossed the ACK. A tester that is late notices it together with the next one.
      const isBehind = (entry: Entry) => entry.time - start >= 3 * CROSSING;
      const again = (await s.allUntil(isBehind, 630)).find(isBehind);
      t.want(s.requestAt(again) === 1, `after progress: wanted psn+1 again, got ${s.describe(again)}`);
      s.acknowledge(1);
      await s.completed(['1:SUCCESS'], 'SEND');
    },
  ),
  rule(
    'TMO-04',
    {
      title: 'timeout 0 is never',
      section: '9.7.6.1.3',
      needs: ['rc', 'post', 'completions'],
      text: 'The program has a clock of its own.',
    },
    async (t) => {
      const s = await t.req({ timeout: 0, retryCnt: 2 });
      await s.post('send', { id: 1, length: 32 });
      await s.next();
      const again = await s.all(1200);
      t.want(again.length === 0, 'repeated with timeout 0');
    },
  ),
  rule(
    'TMO-06',
    {
      title: 'retry_cnt 7 is seven, not for ever',
      section: '9.9.2.1',
      needs: ['rc', 'post', 'completions'],
      text: 'Unlike rnr_retry: a peer that is gone has to be found out.',
    },
    async (t) => {
      const [timeout, retryCnt] = [11, 7];
      const s = await t.req({ timeout, retryCnt });
      await s.post('send', { id: 1, length: 32 });
      const most = (1 + retryCnt) * 4 * timeoutOf(timeout) + t.waits.slack + t.waits.patience;
      await s.completed(['1:RETRY_EXC_ERR'], 'retries used up', most);
      t.note(`${(await s.all(1)).length} sends`);
    },
  ),
  rule(
    'NAK-01',
    {
      title: 'a sequence NAK acknowledges what is before its PSN; the rest is retransmitted at once',
      section: '9.7.5.2.3',
      needs: ['rc', 'post', 'completions'],
      text: 'It is how a loss costs a round trip and not a timeout.',
      first: true,
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 10, length: 32, count: 4 });
      const sent = await s.requests(4);
      t.want(sent.length === 4, `${sent.length} sends of 4`);
      await s.all(10);
      s.acknowledge(2, { syndrome: 0x60 });
      const again = s
        .fresh(behindProbes(s, await s.all(300), 3))
        .map((e) => s.requestAt(e))
        .join(', ');
      t.want(again === '2, 3', `after NAK psn+2: sent ${again || 'nothing'} again, wanted 2, 3`);
      await s.completed(['10:SUCCESS', '11:SUCCESS'], 'before the NAK');
      s.acknowledge(3);
      await s.completed(['12:SUCCESS', '13:SUCCESS'], 'the rest');
    },
  ),
  rule(
    'NAK-02',
    {
      title: 'sequence NAKs without progress end after the retries',
      section: '9.9.2.4.1',
      needs: ['rc', 'post', 'completions'],
      text: 'A peer that refuses the same packet for ever would keep the program waiting for ever.',
    },
    async (t) => {
      const s = await t.req({ timeout: 14, retryCnt: 3 });
      await s.post('send', { id: 1, length: 32 });
      let sent = 0;
      while (sent < 30 && (await s.next(400)) !== undefined) {
        sent++;
        s.acknowledge(0, { syndrome: 0x60 });
      }
      t.note(`${sent} sends`);
      await s.completed(['1:RETRY_EXC_ERR'], 'NAKs without end');
    },
  ),
  rule(
    'NAK-03',
    {
      title: 'a sequence NAK for a PSN that was not sent changes nothing',
      section: '9.7.5.2.3, 9.9.2.2',
      needs: ['rc', 'post', 'completions'],
      text: 'It acknowledges everything before its PSN: taken, it reports lost data as sent.',
      first: true,
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32 });
      await s.next();
      s.acknowledge(9, { syndrome: 0x60 });
      const sent = s.fresh(await s.all()).filter((e) => (s.requestAt(e) ?? 0) > 0);
      t.want(sent.length === 0, `NAK psn+9: sent ${s.list(sent)}`);
      // A request completes once.
      if (!(await s.noCompletion('NAK of a PSN not sent', 50))) return;
      s.acknowledge(0);
      await s.completed(['1:SUCCESS'], 'then the ACK');
    },
  ),
  ends('NAK-04', 'invalid request', 0x61, 'REM_INV_REQ_ERR'),
  ends('NAK-05', 'remote access', 0x62, 'REM_ACCESS_ERR', true),
  ends('NAK-06', 'remote operational', 0x63, 'REM_OP_ERR'),
  rule(
    'NAK-08',
    {
      title: 'after a sequence NAK within a message it goes on from there with MIDDLE',
      section: '9.7.5.2.3',
      needs: ['rc', 'post', 'completions'],
      text: 'The responder has the beginning of the message already.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('write', { id: 1, length: 8192, remote: REMOTE });
      await s.requests(8);
      await s.all(10);
      s.acknowledge(3, { syndrome: 0x60 });
      const again = s.fresh(behindProbes(s, await s.all(), 7));
      const [first] = again;
      t.want(
        first?.packet?.info.key === 'RC_RDMA_WRITE_MIDDLE' && s.requestAt(first) === 3,
        `goes on with ${s.describe(first)}`,
      );
      t.want(s.requestAt(again.at(-1)) === 7, 'does not go on to the end');
      s.acknowledge(7);
      await s.completed(['1:SUCCESS'], 'WRITE');
    },
  ),
  rule(
    'NAK-09',
    {
      title: 'an old sequence NAK changes nothing',
      section: '9.7.5.2.3',
      needs: ['rc', 'post', 'completions'],
      text: 'Networks deliver copies late.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32, count: 2 });
      await s.requests(2);
      s.acknowledge(1);
      await s.completed(['1:SUCCESS', '2:SUCCESS'], 'two SENDs');
      await s.all(10);
      s.acknowledge(0, { syndrome: 0x60 });
      s.acknowledge(1, { syndrome: 0x60 });
      await s.silence('old NAK');
      await s.post('send', { id: 3, length: 32 });
      const next = await s.next();
      t.want(s.requestAt(next) === 2, `the next SEND: wanted psn+2, got ${s.describe(next)}`);
    },
  ),
  rule(
    'EXT-01',
    {
      title:
        'an ACK that comes while its packets are repeated completes them once, and nothing is lost behind',
      section: '9.7.5.1.2',
      needs: ['rc', 'post', 'completions'],
      text: 'The ACK was only late.',
    },
    async (t) => {
      const s = await t.req({ timeout: 14, retryCnt: 6 });
      await s.post('send', { id: 1, length: 32, count: 3 });
      await s.requests(3);
      await s.next(600);
      s.acknowledge(2);
      s.acknowledge(2);
      await s.completed(['1:SUCCESS', '2:SUCCESS', '3:SUCCESS'], 'three SENDs');
      await s.all(100);
      await s.post('send', { id: 9, length: 48 });
      const next = await s.next(600);
      t.want(
        s.requestAt(next) === 3 && next?.packet?.payload.length === 48,
        `the next message: wanted 48 B at psn+3, got ${s.describe(next)}`,
      );
    },
  ),
];
