/** Repeated requests (IBTA vol 1 §9.7.5.1.5): answered, and not executed. */
import type { Case } from '../case.ts';
import { bytes, same } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { rule } from '../rule.ts';
import type { Session } from '../session.ts';

const SECTION = '9.7.5.1.5';

const payloads = (entries: readonly Entry[]): number[] =>
  entries.map(({ packet }) => packet?.payload.length ?? 0);

const dataOf = (entries: readonly Entry[]): Uint8Array =>
  Uint8Array.from(entries.flatMap(({ packet }) => [...(packet?.payload ?? [])]));

/** No READ response with data may be among the answers. */
function noData(t: Case, s: Session, answers: readonly Entry[], what: string): void {
  t.want(!payloads(answers).some((length) => length > 0), `${what}: got ${s.list(answers)}`);
}

/** The responses of a READ have to have these PSNs. */
function responsesAt(
  t: Case,
  s: Session,
  answers: readonly Entry[],
  wanted: number[],
  what: string,
): boolean {
  const psns = answers.map((entry) => s.at(entry)).join(', ');
  return t.want(
    psns === wanted.join(', '),
    `${what}: responses ${psns || 'none'}, wanted ${wanted.join(', ')}`,
  );
}

export const duplicateRules = [
  rule(
    'DUP-01',
    {
      title: 'a repeated SEND is acknowledged and not executed',
      section: SECTION,
      needs: ['rc', 'receives', 'completions'],
      text: 'A lost ACK makes every requester repeat. A program must not receive the message twice.',
      first: true,
    },
    async (t) => {
      const s = await t.rc({ receives: 3 });
      s.sendOnly(0);
      await s.ack(0);
      s.sendOnly(0);
      await s.ack(0, 'repetition');
      await s.completed(['1000:SUCCESS'], 'one SEND');
      await s.noCompletion('the repeated SEND');
    },
  ),
  rule(
    'DUP-02',
    {
      title: 'a repeated WRITE is acknowledged and not executed',
      section: SECTION,
      needs: ['rc', 'write', 'memory'],
      text: 'A late copy of a WRITE must not overwrite what a later WRITE put there.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.write(0, bytes(32, 1));
      await s.ack(0);
      s.write(1, bytes(32, 2));
      await s.ack(1);
      s.write(0, bytes(32, 1));
      await s.ack(1, 'repetition, by the PSN of the latest request');
      await s.holds(0, bytes(32, 2), 'the repeated WRITE changed memory');
    },
  ),
  rule(
    'DUP-03',
    {
      title: 'a repetition does not disturb the message in progress',
      section: SECTION,
      needs: ['rc', 'write', 'memory'],
      text: 'A copy that the network delayed may come between two packets of a later message.',
    },
    async (t) => {
      const s = await t.rc();
      const data = bytes(2048, 5);
      s.write(0);
      await s.ack(0);
      s.writeFirst(1, data.slice(0, 1024), 2048, 4096);
      s.write(0);
      await s.next();
      s.follow('RC_RDMA_WRITE_LAST', 2, data.slice(1024));
      await s.ack(2, 'the message in progress');
      await s.holds(4096, data, 'the message in progress has wrong data');
    },
  ),
  rule(
    'DUP-04',
    {
      title: 'a repeated READ is answered again',
      section: SECTION,
      needs: ['rc', 'read'],
      text: 'The responses of a READ are its only acknowledgement: without a second answer a lost response ends the connection.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      for (const what of ['READ', 'repetition']) {
        s.read(0, 2500);
        responsesAt(t, s, await s.collect(3), [0, 1, 2], what);
      }
      await s.silence('after the responses');
    },
  ),
  rule(
    'DUP-05',
    {
      title: 'a READ that asks for the rest begins with FIRST or ONLY, with an AETH',
      section: `${SECTION}, 9.4.4`,
      needs: ['rc', 'read', 'memory'],
      text: 'To the requester it is a READ of its own: a MIDDLE without a FIRST is out of order.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.read(0, 4096);
      responsesAt(t, s, await s.collect(4), [0, 1, 2, 3], 'READ');
      s.read(1, 3072, 1024);
      const rest = await s.collect(3);
      responsesAt(t, s, rest, [1, 2, 3], 'rest');
      const [first] = rest;
      t.want(
        first?.packet?.info.key === 'RC_RDMA_READ_RESPONSE_FIRST' &&
          first.packet.extensions.aeth !== undefined,
        `the rest begins with ${s.describe(first)}`,
      );
      t.want(same(dataOf(rest), await s.peek(1024, 3072)), 'wrong bytes');
    },
  ),
  rule(
    'DUP-06',
    {
      title: 'a repeated READ can ask for more than an earlier repetition did',
      section: SECTION,
      needs: ['rc', 'read'],
      text: 'The answer to a partial repetition may be lost too; the requester then begins further ahead again.',
    },
    async (t) => {
      const s = await t.rc();
      s.read(0, 4096);
      await s.collect(4);
      s.read(2, 2048, 2048);
      await s.collect(2);
      s.read(0, 4096);
      responsesAt(t, s, await s.collect(4), [0, 1, 2, 3], 'whole READ again');
    },
  ),
  rule(
    'DUP-07',
    {
      title: 'a repeated READ that asks for more than the first is not served',
      section: SECTION,
      needs: ['rc', 'read'],
      text: 'Its later responses would have PSNs of other requests.',
    },
    async (t) => {
      const s = await t.rc();
      s.read(0, 512);
      await s.collect(1);
      s.read(0, 1024);
      const answers = await s.all();
      t.want(!payloads(answers).some((length) => length > 512), `served ${payloads(answers).join(', ')} B`);
    },
  ),
  rule(
    'DUP-08',
    {
      title: 'a repeated READ with another key or address is not served',
      section: SECTION,
      needs: ['rc', 'read'],
      text: 'It is no repetition. An attacker who guesses a PSN could read memory by it, past the checks of a new request.',
    },
    async (t) => {
      const s = await t.rc();
      s.read(0, 512);
      await s.collect(1);
      s.read(0, 512, 0, { reth: { rkey: (s.rkey ^ 0x100) >>> 0 } });
      noData(t, s, await s.all(), 'another key');
      s.read(0, 512, 4096);
      noData(t, s, await s.all(), 'another address');
    },
  ),
  rule(
    'DUP-09',
    {
      title: 'a repeated READ older than the last max_dest_rd_atomic is answered as before, or not at all',
      section: SECTION,
      should: true,
      needs: ['rc', 'read', 'attributes'],
      text: 'The device need not remember it. An ACK would complete a READ that brought nothing; a NAK would end the connection.',
    },
    async (t) => {
      const s = await t.rc({ maxDestRdAtomic: 2 });
      const firsts: Uint8Array[] = [];
      for (let n = 0; n < 6; n++) {
        s.read(n, 64, 64 * n);
        firsts.push(dataOf(await s.collect(1)));
      }
      s.read(0, 64);
      const answers = await s.all();
      t.note(`answer: ${s.list(answers)}`);
      const isBefore = s.at(answers[0]) === 0 && answers.length === 1 && same(dataOf(answers), firsts[0]);
      t.want(answers.length === 0 || isBefore, `forgotten READ: got ${s.list(answers)}`);
      await s.alive(6);
    },
  ),
  rule(
    'DUP-10',
    {
      title: 'an atomic older than the last max_dest_rd_atomic is never executed again',
      section: SECTION,
      needs: ['rc', 'atomic', 'memory', 'attributes'],
      text: 'Its saved result is gone: silence is right, a second addition is not.',
    },
    async (t) => {
      const s = await t.rc({ maxDestRdAtomic: 2 });
      await s.poke(0, new Uint8Array(8));
      for (let n = 0; n < 6; n++) {
        s.fetchAdd(n, 1n);
        await s.next();
      }
      s.fetchAdd(0, 1n);
      t.note(`answer: ${s.list(await s.all())}`);
      t.want((await s.peekU64(0)) === 6n, 'executed again');
    },
  ),
  rule(
    'DUP-11',
    {
      title: 'a repeated WRITE with immediate completes no second receive',
      section: SECTION,
      needs: ['rc', 'write', 'receives', 'completions'],
      text: 'The receive of the next message would be gone.',
    },
    async (t) => {
      const s = await t.rc({ receives: 3 });
      for (let i = 0; i < 3; i++) {
        s.writeImmediate(0, 1);
        await s.next();
      }
      await s.completed(['1000:SUCCESS'], 'one WRITE with immediate');
      await s.noCompletion('the repetitions');
    },
  ),
  rule(
    'DUP-12',
    {
      title: 'a repeated FIRST of the message in progress does not begin it anew',
      section: SECTION,
      needs: ['rc', 'receives', 'completions'],
      text: 'The receive would be filled from its beginning with the middle of the message.',
    },
    async (t) => {
      const s = await t.rc({ receives: 1 });
      const data = bytes(2100, 3);
      const first = { payload: data.slice(0, 1024) };
      s.send('RC_SEND_FIRST', 0, first);
      s.send('RC_SEND_FIRST', 0, { ...first, ackReq: true });
      await s.all(40);
      s.send('RC_SEND_MIDDLE', 1, { payload: data.slice(1024, 2048) });
      s.follow('RC_SEND_LAST', 2, data.slice(2048));
      s.isAck((await s.all()).at(-1), 2, 'the message');
      const [completion] = await s.completed(['1000:SUCCESS'], 'the message');
      t.want(completion?.length === 2100, `received ${completion?.length} B of 2100`);
    },
  ),
  rule(
    'DUP-13',
    {
      title: 'the ACK of a repeated WRITE acknowledges no READ whose responses are still to come',
      section: `${SECTION}, 9.7.5.1.4`,
      needs: ['rc', 'write', 'read'],
      text: 'It has the PSN of the latest request. In front of the responses, it reports a loss.',
    },
    async (t) => {
      const s = await t.rc();
      s.write(0);
      await s.ack(0);
      s.read(1, 4096);
      s.write(0);
      const answers = await s.all();
      const isResponse = ({ packet }: Entry) => packet?.info.key !== 'RC_ACKNOWLEDGE';
      const responses = answers.filter(isResponse);
      responsesAt(t, s, responses, [1, 2, 3, 4], 'READ');
      const early = answers.some(
        (ack, i) =>
          !isResponse(ack) &&
          responses.some((each) => s.at(each)! <= s.at(ack)! && answers.indexOf(each) > i),
      );
      t.want(!early, 'an ACK in front of the responses that it acknowledges');
    },
  ),
  rule(
    'DUP-14',
    {
      title: 'a repeated READ of memory deregistered since is not served',
      section: `${SECTION}, 10.6.7`,
      needs: ['rc', 'read', 'deregister'],
      text: 'The pages may belong to another program by now.',
    },
    async (t) => {
      const s = await t.rc();
      s.read(0, 512);
      await s.collect(1);
      await s.deregister();
      s.read(0, 512);
      const answers = await s.all();
      noData(t, s, answers, 'the memory is gone');
      t.note(`answer: ${s.list(answers)}`);
    },
  ),
];
