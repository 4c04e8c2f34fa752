/** READ at the requester (IBTA vol 1 §9.7.5.1.4, §9.9.2). */
import { ackTimeoutMicroseconds } from '@node-roce/wire';
import { bytes } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { rule } from '../rule.ts';
import type { Session } from '../session.ts';

/** The memory that the device reads, and where it puts the bytes. */
const REMOTE = { va: 0x1_0000n, rkey: 5 };
const OFFSET = 8192;

const readOf = (s: Session, length: number, id = 1): Promise<void> =>
  s.post('read', { id, length, offset: OFFSET, remote: REMOTE });

/** ms: more than four times the timeout of code 18. */
const ASKS_AGAIN = 5000;

/** The next request that is no early repetition of the first one. */
async function askedAgain(s: Session): Promise<Entry | undefined> {
  const isOther = (entry: Entry) => s.requestAt(entry) !== 0;
  return (await s.allUntil(isOther, ASKS_AGAIN)).find(isOther);
}

export const readRules = [
  rule(
    'RD-01',
    {
      title: 'a READ is asked for again from the first missing response on',
      section: '9.7.5.1.4, 9.9.2.4.1',
      needs: ['rc', 'post', 'completions', 'memory'],
      text: 'Address, length and PSN move on together, or the wrong bytes come.',
    },
    async (t) => {
      const s = await t.req({ timeout: 16 });
      const data = bytes(4096, 3);
      await readOf(s, 4096);
      const request = await s.next();
      t.want(request?.packet?.extensions.reth?.length === 4096, `the READ: got ${s.describe(request)}`);
      s.respond(0, data, [1]);
      const again = await askedAgain(s);
      const reth = again?.packet?.extensions.reth;
      t.want(
        again?.packet?.info.key === 'RC_RDMA_READ_REQUEST' && s.requestAt(again) === 1,
        `asked again: wanted a READ at psn+1, got ${s.describe(again)}`,
      );
      t.want(
        reth?.va === REMOTE.va + 1024n && (reth.length === 3072 || reth.length === 1024),
        'asked again for other bytes',
      );
      s.respond(1, data.slice(1024));
      await s.completed(['1:SUCCESS'], 'READ');
      await s.holds(OFFSET, data, 'wrong bytes');
    },
  ),
  rule(
    'RD-02',
    {
      title: 'a response that came before is ignored',
      section: '9.7.5.1.4',
      needs: ['rc', 'post', 'completions', 'memory'],
      text: 'The network may deliver a copy whose bytes are older.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      const data = bytes(2048, 4);
      await readOf(s, 2048);
      await s.next();
      s.respond(0, data, [1]);
      s.reply('RC_RDMA_READ_RESPONSE_FIRST', 0, { payload: bytes(1024, 99) });
      s.respond(0, data, [0]);
      await s.completed(['1:SUCCESS'], 'READ');
      await s.holds(OFFSET, data, 'the repetition was written');
    },
  ),
  rule(
    'RD-03',
    {
      title: 'a response of a wrong length does not complete a READ',
      section: '9.9.2.2, 9.9.2.4.2',
      needs: ['rc', 'post', 'completions', 'memory'],
      text: 'The program would take old bytes for the peer’s.',
    },
    async (t) => {
      const s = await t.req({ timeout: 18, retryCnt: 1 });
      await readOf(s, 2048);
      await s.next();
      const behind = await s.peek(OFFSET + 512, 2048);
      s.reply('RC_RDMA_READ_RESPONSE_ONLY', 0, { payload: bytes(512) });
      await s.noSuccess('512 of 2048 bytes', 400);
      await s.holds(OFFSET + 512, behind, 'memory behind the response was changed');
    },
  ),
  rule(
    'RD-04',
    {
      title: 'responses past the end of a READ write nothing',
      section: '9.9.2.2',
      needs: ['rc', 'post', 'completions', 'memory'],
      text: 'The peer would choose what lies behind the program’s buffer.',
      hostile: true,
    },
    async (t) => {
      const s = await t.req({ timeout: 18, retryCnt: 1 });
      await readOf(s, 1024);
      await s.next();
      const behind = await s.peek(OFFSET + 1024, 1024);
      s.respond(0, bytes(2048, 5));
      const [completion] = await s.completions(1, 300);
      t.note(completion?.status ?? 'no completion');
      await s.holds(OFFSET + 1024, behind, 'written past the READ');
    },
  ),
  rule(
    'RD-05',
    {
      title: 'an ACK does not complete a READ',
      section: '9.7.5.1.4',
      needs: ['rc', 'post', 'completions'],
      text: 'No byte came: the program would take old bytes for the peer’s.',
      first: true,
    },
    async (t) => {
      const s = await t.req({ timeout: 18, retryCnt: 2 });
      await readOf(s, 64);
      await s.next();
      s.acknowledge(0);
      await s.noSuccess('ACK of a READ');
    },
  ),
  rule(
    'RD-06',
    {
      title: 'an ACK of a later request shows that a READ’s responses were lost: it is retransmitted',
      section: '9.7.5.1.4',
      needs: ['rc', 'post', 'completions'],
      text: 'Otherwise it waits for its timer.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await readOf(s, 64);
      await s.post('send', { id: 2, length: 32 });
      await s.requests(2);
      s.acknowledge(1);
      await s.retransmits('RC_RDMA_READ_REQUEST', 0, 'after the ACK: wanted the READ', 600);
      await s.noCompletion('READ without responses', 30);
    },
  ),
  rule(
    'RD-07',
    {
      title: 'no more READs are outstanding than were agreed on',
      section: '9.7.3.2',
      needs: ['rc', 'post', 'completions'],
      text: 'The responder keeps resources for so many, and refuses or forgets what is beyond.',
      first: true,
    },
    async (t) => {
      const s = await t.req({ timeout: 20, maxRdAtomic: 2 });
      await s.post('read', { id: 1, length: 64, count: 5, offset: OFFSET, remote: REMOTE });
      const sent = s.fresh(await s.all());
      t.want(sent.length === 2, `${sent.length} READs with max_rd_atomic 2`);
      s.respond(0, bytes(64));
      const before = new Set(sent.map((e) => e.packet?.bth.psn));
      const more = s.fresh(await s.all()).filter((e) => !before.has(e.packet?.bth.psn));
      t.want(more.length === 1, `${more.length} more after one response`);
    },
  ),
  rule(
    'RD-08',
    {
      title: 'responses of the second READ before those of the first: the first is asked for again',
      section: '9.7.5.1.4',
      needs: ['rc', 'post', 'completions', 'memory'],
      text: 'Each READ must get its own bytes.',
    },
    async (t) => {
      const s = await t.req({ timeout: 16 });
      const other = OFFSET + 4096;
      await readOf(s, 64);
      await s.post('read', { id: 2, length: 64, offset: other, remote: { va: 0x2_0000n, rkey: 5 } });
      await s.requests(2);
      await s.all(10);
      s.respond(1, bytes(64, 2));
      let again: Entry | undefined;
      for (let i = 0; i < 6 && s.requestAt(again) !== 0; i++) again = await s.next(2500);
      t.want(s.requestAt(again) === 0, `wanted the first READ again, got ${s.describe(again)}`);
      s.respond(0, bytes(64, 1));
      s.respond(1, bytes(64, 2));
      await s.completed(['1:SUCCESS', '2:SUCCESS'], 'both READs');
      await s.holds(OFFSET, bytes(64, 1), 'wrong bytes of the first');
      await s.holds(other, bytes(64, 2), 'wrong bytes of the second');
    },
  ),
  rule(
    'RD-09',
    {
      title: 'a remote access NAK in answer to a READ',
      section: '9.9.2.4.2',
      needs: ['rc', 'post', 'completions'],
      text: 'The program learns that its key is wrong.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await readOf(s, 64);
      await s.next();
      s.acknowledge(0, { syndrome: 0x62 });
      await s.completed(['1:REM_ACCESS_ERR'], 'READ');
    },
  ),
  rule(
    'RD-10',
    {
      title: 'a LAST where a MIDDLE is due does not complete a READ',
      section: '9.9.2.2',
      needs: ['rc', 'post', 'completions'],
      text: 'A part of the bytes never came: the program would take old ones for the peer’s.',
    },
    async (t) => {
      const s = await t.req({ timeout: 17, retryCnt: 1 });
      await readOf(s, 3072);
      await s.next();
      s.reply('RC_RDMA_READ_RESPONSE_FIRST', 0, { payload: bytes(1024, 1) });
      s.reply('RC_RDMA_READ_RESPONSE_LAST', 1, { payload: bytes(1024, 2) });
      await s.noSuccess('FIRST, LAST: 2048 of 3072 bytes', 200);
    },
  ),
  rule(
    'RD-11',
    {
      title: 'a response with a bad ICRC is asked for again',
      section: '9.7.5.1.4, A17.3.3',
      needs: ['rc', 'post', 'completions', 'memory'],
      text: 'The ICRC is the only check of the data from end to end.',
    },
    async (t) => {
      const s = await t.req({ timeout: 16 });
      const data = bytes(64, 7);
      await readOf(s, 64);
      await s.next();
      s.reply('RC_RDMA_READ_RESPONSE_ONLY', 0, { payload: bytes(64, 8), icrc: 1 });
      await s.noCompletion('bad ICRC', 50);
      const again = await s.next(1500);
      t.want(s.requestAt(again) === 0, `wanted the READ again, got ${s.describe(again)}`);
      s.respond(0, data);
      await s.completed(['1:SUCCESS'], 'READ');
      await s.holds(OFFSET, data, 'wrong bytes');
    },
  ),
  rule(
    'RD-12',
    {
      title: 'a READ into memory that was deregistered meanwhile does not succeed',
      section: '9.9.2.4.2, 10.6.7',
      needs: ['rc', 'post', 'completions', 'deregister'],
      text: 'The bytes have no place any more: success would name a buffer that has none of them.',
    },
    async (t) => {
      const s = await t.req({ timeout: 16, retryCnt: 1 });
      await readOf(s, 64);
      await s.next();
      await s.deregister();
      s.respond(0, bytes(64, 3));
      await s.noSuccess('the READ');
    },
  ),
  rule(
    'RD-13',
    {
      title: 'at a gap in the responses a READ is asked for again at once',
      section: '9.7.5.1.4, 9.9.2.2',
      should: true,
      needs: ['rc', 'post', 'completions'],
      text: 'An implied NAK: a loss costs a round trip and not a timeout.',
    },
    async (t) => {
      const timeout = 18;
      const s = await t.req({ timeout });
      await readOf(s, 3072);
      await s.next();
      await s.all(10);
      const start = t.line.now();
      s.respond(0, bytes(3072, 3), [1]);
      const again = await askedAgain(s);
      const waited = again === undefined ? Number.POSITIVE_INFINITY : again.time - start;
      t.want(waited < ackTimeoutMicroseconds(timeout) / 2000, 'asked again when the timer fired, or never');
      t.note(`asked again after ${waited.toFixed(1)} ms`);
    },
  ),
];
