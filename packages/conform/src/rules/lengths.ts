/** Lengths of packets and messages (IBTA vol 1 §9.7.4.1.6). */
import type { Case } from '../case.ts';
import { bytes, same } from '../device-side.ts';
import type { Need } from '../needs.ts';
import { type Rule, type RuleSpec, rule } from '../rule.ts';
import type { Session } from '../session.ts';

const SECTION = '9.7.4.1.6';

const WRONG =
  'Sender and receiver disagree about the message: carried on, it would end with bytes missing or too many.';

/** Packets that draw an invalid request NAK with PSN `n`, after which the connection is over. */
function refused(
  id: string,
  title: string,
  n: number,
  send: (s: Session) => unknown,
  spec: Partial<RuleSpec> = {},
): Rule {
  const needs: readonly Need[] = ['rc', 'write'];
  return rule(id, { title, section: SECTION, needs, text: WRONG, ...spec }, async (t) => {
    const s = await t.rc();
    send(s);
    await s.nak('invalid', n);
    await s.dead(n + 1);
  });
}

/** `play` must leave a part of memory as it was. */
async function unchanged(
  t: Case,
  s: Session,
  [offset, length]: readonly [number, number],
  play: () => Promise<unknown>,
) {
  const before = await s.peek(offset, length);
  await play();
  t.want(same(before, await s.peek(offset, length)), 'memory that is not the message’s was changed');
}

export const lengthRules = [
  refused(
    'LEN-01',
    'a FIRST shorter than the path MTU is an invalid request',
    0,
    (s) => s.writeFirst(0, bytes(512), 2048),
    { first: true },
  ),
  refused('LEN-02', 'a MIDDLE shorter than the path MTU is an invalid request', 1, (s) => {
    s.writeFirst(0, bytes(1024), 3072);
    s.follow('RC_RDMA_WRITE_MIDDLE', 1, bytes(1020));
  }),
  rule(
    'LEN-03',
    {
      title: 'a LAST without a byte is an invalid request',
      section: SECTION,
      needs: ['rc', 'write'],
      text: WRONG,
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.writeFirst(0, bytes(1024), 1024);
      s.follow('RC_RDMA_WRITE_LAST', 1);
      // A device may refuse the FIRST already, which carries all that was announced.
      const answer = await s.next();
      s.isNak(answer, 'invalid', s.at(answer) === 0 ? 0 : 1, 'LAST');
    },
  ),
  refused(
    'LEN-04',
    'an ONLY longer than the path MTU is an invalid request',
    0,
    (s) => s.write(0, bytes(1028)),
    { first: true },
  ),
  rule(
    'LEN-05',
    {
      title: 'a WRITE ONLY with fewer bytes than its RETH announces is an invalid request',
      section: SECTION,
      needs: ['rc', 'write', 'memory'],
      text: WRONG,
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      await unchanged(t, s, [0, 64], async () => {
        s.write(0, bytes(32), 0, { reth: { length: 64 } });
        await s.nak('invalid', 0);
      });
      await s.dead(1);
    },
  ),
  rule(
    'LEN-06',
    {
      title: 'a WRITE ONLY with more bytes than its RETH announces is an invalid request',
      section: SECTION,
      needs: ['rc', 'write', 'memory'],
      text: WRONG,
    },
    async (t) => {
      const s = await t.rc();
      await unchanged(t, s, [0, 64], async () => {
        s.write(0, bytes(64), 0, { reth: { length: 32 } });
        await s.nak('invalid', 0);
      });
    },
  ),
  refused('LEN-07', 'a WRITE that ends short of its RETH is an invalid request', 1, (s) => {
    s.writeFirst(0, bytes(1024), 4096);
    s.follow('RC_RDMA_WRITE_LAST', 1, bytes(64));
  }),
  rule(
    'LEN-08',
    {
      title: 'a WRITE that goes past its RETH is an invalid request',
      section: SECTION,
      needs: ['rc', 'write', 'memory'],
      text: 'Only the announced range was checked: what is behind it may be anybody’s.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      await unchanged(t, s, [1030, 1018], async () => {
        s.writeFirst(0, bytes(1024), 1030);
        s.follow('RC_RDMA_WRITE_LAST', 1, bytes(1024, 9));
        await s.nak('invalid', 1);
      });
    },
  ),
  refused('LEN-09', 'a FIRST with a pad count is an invalid request', 0, (s) =>
    s.writeFirst(0, bytes(1022), 2048),
  ),
  rule(
    'LEN-10',
    {
      title: 'a SEND longer than the receive is an invalid request; the receive fails with a length error',
      section: SECTION,
      needs: ['rc', 'receives', 'completions'],
      text: 'Both programs have to learn that the message did not fit.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      await s.receive({ id: 1, length: 16 });
      s.sendOnly(0, bytes(64));
      await s.nak('invalid', 0);
      await s.completed(['1:LOC_LEN_ERR'], 'the receive');
    },
  ),
  rule(
    'LEN-11',
    {
      title: 'a SEND of 0 bytes completes a receive',
      section: '9.4.1',
      needs: ['rc', 'receives', 'completions'],
      text: 'Programs use it as a signal.',
    },
    async (t) => {
      const s = await t.rc({ receives: 1 });
      s.sendOnly(0, new Uint8Array(0));
      await s.ack(0);
      const [completion] = await s.completed(['1000:SUCCESS'], 'the SEND');
      t.want(completion?.length === 0, `received ${completion?.length} B of 0`);
    },
  ),
  rule(
    'LEN-12',
    {
      title: 'a WRITE and a READ of 0 bytes need no valid key',
      section: '9.4.3, 9.4.4',
      needs: ['rc', 'write', 'read'],
      text: 'Requesters use them to see whether the peer is there.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      const reth = { rkey: 0xbad, va: 0n, length: 0 };
      s.write(0, new Uint8Array(0), 0, { reth });
      await s.ack(0, 'WRITE');
      s.read(1, 0, 0, { reth });
      const answer = await s.next();
      t.want(
        answer?.packet?.info.key === 'RC_RDMA_READ_RESPONSE_ONLY' && s.at(answer) === 1,
        `READ: wanted a response with psn+1, got ${s.describe(answer)}`,
      );
    },
  ),
  rule(
    'LEN-13',
    {
      title: 'a READ of more than 2^31 bytes is refused',
      section: SECTION,
      needs: ['rc', 'read'],
      text: 'The length is beyond what a message may have, and past the region: which of the two NAKs comes is open.',
    },
    async (t) => {
      const s = await t.rc();
      s.read(0, 0x8000_0001);
      const answer = await s.next();
      const syndrome = answer?.packet?.extensions.aeth?.syndrome;
      t.want(
        syndrome === 0x61 || syndrome === 0x62,
        `wanted NAK 0x61 (invalid) or 0x62 (access), got ${s.describe(answer)}`,
      );
    },
  ),
  rule(
    'LEN-14',
    {
      title: 'a READ request with a payload is an invalid request',
      section: SECTION,
      should: true,
      needs: ['rc', 'read'],
      text: 'It is no packet of any sender: served, it hides a damaged one.',
    },
    async (t) => {
      t.use('read');
      const s = await t.rc();
      s.raw(0x0c, 0, s.rethBytes(64), bytes(16));
      await s.nak('invalid', 0);
    },
  ),
  rule(
    'LEN-15',
    {
      title: 'each path MTU: messages of one byte less, just as many, and one more',
      section: SECTION,
      needs: ['rc', 'write', 'read', 'attributes'],
      text: 'The places where FIRST and LAST begin.',
    },
    async (t) => {
      const largest = Number(t.device.info.mtu ?? 4096);
      for (const pathMtu of [256, 512, 2048, 4096].filter((bytes) => bytes <= largest)) {
        const s = await t.rc({ pathMtu });
        const data = bytes(pathMtu + 1, pathMtu >> 8);
        s.write(0, data.slice(0, pathMtu - 1));
        await s.ack(0, `${pathMtu - 1} B`);
        s.write(1, data.slice(0, pathMtu));
        await s.ack(1, `${pathMtu} B`);
        s.writeFirst(2, data.slice(0, pathMtu), pathMtu + 1);
        s.follow('RC_RDMA_WRITE_LAST', 3, data.slice(pathMtu));
        await s.ack(3, `${pathMtu + 1} B`);
        s.read(4, pathMtu + 1);
        const lengths = (await s.collect(2)).map(({ packet }) => packet?.payload.length).join(', ');
        t.want(lengths === `${pathMtu}, 1`, `READ of ${pathMtu + 1} B: responses of ${lengths || 'none'}`);
      }
    },
  ),
  rule(
    'LEN-16',
    {
      title: 'a receive that ends within the LAST packet: invalid request, length error',
      section: SECTION,
      needs: ['rc', 'receives', 'completions'],
      text: 'Both programs have to learn that the message did not fit.',
    },
    async (t) => {
      const s = await t.rc();
      await s.receive({ id: 1, length: 1100 });
      s.send('RC_SEND_FIRST', 0, { payload: bytes(1024) });
      s.follow('RC_SEND_LAST', 1, bytes(200));
      await s.nak('invalid', 1);
      await s.completed(['1:LOC_LEN_ERR'], 'the receive');
    },
  ),
  refused('LEN-17', 'a LAST longer than the path MTU is an invalid request', 1, (s) => {
    s.writeFirst(0, bytes(1024), 2056);
    s.follow('RC_RDMA_WRITE_LAST', 1, bytes(1032));
  }),
  rule(
    'LEN-18',
    {
      title: 'pad bytes are not written to memory, whatever they are',
      section: '9.2',
      needs: ['rc', 'write', 'memory'],
      text: 'They are behind the message.',
    },
    async (t) => {
      const s = await t.rc();
      await unchanged(t, s, [5, 3], async () => {
        s.write(0, bytes(5), 0, { pad: Uint8Array.of(1, 2, 3) });
        await s.ack(0);
      });
    },
  ),
];
