/** Atomics, at the responder and at the requester (IBTA vol 1 §9.4.5, §9.7.5.1.5). */
import { bytes } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { rule } from '../rule.ts';

const originalOf = (entry: Entry | undefined): bigint | undefined =>
  entry?.packet?.extensions.atomicAckEth?.original;

const u64 = (value: bigint): Uint8Array => {
  const b = new Uint8Array(8);
  new DataView(b.buffer).setBigUint64(0, value, true);
  return b;
};

/** Where the device asks for memory of the tester. */
const REMOTE = { va: 0x1_0000n, rkey: 5 };

export const atomicRules = [
  rule(
    'ATO-01',
    {
      title: 'a repeated atomic is answered with the saved result, and executed once',
      section: '9.7.5.1.5',
      needs: ['rc', 'atomic', 'memory'],
      text: 'A lost answer must not add twice, nor give a lock to a second owner.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      await s.poke(0, u64(0n));
      s.fetchAdd(0, 5n);
      t.want(originalOf(await s.next()) === 0n, 'the first atomic does not return 0');
      s.fetchAdd(1, 7n);
      t.want(originalOf(await s.next()) === 5n, 'the second atomic does not return 5');
      s.fetchAdd(0, 5n);
      const again = await s.next();
      t.want(
        originalOf(again) === 0n && s.at(again) === 0,
        `repetition: ${s.describe(again)}, not the saved 0`,
      );
      t.want((await s.peekU64(0)) === 12n, 'memory is not 5 + 7');
    },
  ),
  rule(
    'ATO-02',
    {
      title: 'compare and swap stores if the values are equal, and returns the original either way',
      section: '9.4.5',
      needs: ['rc', 'atomic', 'memory'],
      text: 'Locks are built on it.',
    },
    async (t) => {
      const s = await t.rc();
      await s.poke(0, u64(1n));
      s.compareSwap(0, 9n, 5n);
      t.want(originalOf(await s.next()) === 1n, 'unequal: the original is not returned');
      s.compareSwap(1, 1n, 6n);
      t.want(originalOf(await s.next()) === 1n, 'equal: the original is not returned');
      t.want((await s.peekU64(0)) === 6n, 'wrong value in memory');
    },
  ),
  rule(
    'ATO-03',
    {
      title: 'an atomic at an address that is no multiple of 8 is an invalid request',
      section: '9.7.4.1.6',
      needs: ['rc', 'atomic'],
      text: 'It could not be done in one piece.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.fetchAdd(0, 1n, 4);
      await s.nak('invalid', 0);
      await s.dead(1);
    },
  ),
  rule(
    'ATO-04',
    {
      title: 'atomics of two connections at one address lose nothing',
      section: '9.4.5',
      needs: ['rc', 'atomic', 'memory', 'regions'],
      text: 'They are for counters and locks that many peers share.',
    },
    async (t) => {
      t.use('regions');
      const first = await t.rc();
      const second = await t.rc();
      await first.poke(0, new Uint8Array(8));
      const { va, rkey } = first;
      const each = 4;
      for (let n = 0; n < each; n++) {
        first.fetchAdd(n, 1n);
        second.send('RC_FETCH_ADD', n, { ackReq: true, atomicEth: { va, rkey, swapAdd: 1n } });
      }
      const answers = [...(await first.collect(each)), ...(await second.collect(each))];
      const originals = new Set(answers.map(originalOf));
      t.want(answers.length === 2 * each, `${answers.length} answers, wanted ${2 * each}`);
      t.want(originals.size === answers.length, 'two of them found the same value');
      t.want((await first.peekU64(0)) === BigInt(2 * each), 'an addition is lost');
    },
  ),
  rule(
    'ATO-05',
    {
      title: 'fetch and add wraps at 2^64',
      section: '9.4.5',
      needs: ['rc', 'atomic', 'memory'],
      text: 'Counters that go down add 2^64 - 1.',
    },
    async (t) => {
      const s = await t.rc();
      await s.poke(0, u64(3n));
      s.fetchAdd(0, 0xffff_ffff_ffff_fffen);
      t.want(originalOf(await s.next()) === 3n, 'the original is not returned');
      t.want((await s.peekU64(0)) === 1n, '3 + (2^64 - 2) is not 1');
    },
  ),
  rule(
    'ATO-06',
    {
      title: 'an atomic across the end of the region is refused',
      section: '9.7.4.1.5',
      needs: ['rc', 'atomic'],
      text: 'It would change memory that was never opened.',
    },
    async (t) => {
      const s = await t.rc();
      s.fetchAdd(0, 1n, 65_536);
      await s.nak('access', 0);
    },
  ),
  rule(
    'ATO-11',
    {
      title: 'a lost answer: the same atomic is retransmitted, with its PSN and its operands',
      section: '9.7.5.1.5',
      needs: ['rc', 'post', 'completions', 'memory'],
      text: 'The responder finds the saved result by the PSN.',
    },
    async (t) => {
      const s = await t.req({ timeout: 15 });
      await s.post('faa', { id: 1, length: 8, offset: 8192, remote: REMOTE, compareAdd: 42n });
      const first = await s.next();
      const again = await s.next(1500);
      t.want(
        first?.packet?.info.key === 'RC_FETCH_ADD' &&
          again?.packet?.info.key === 'RC_FETCH_ADD' &&
          s.requestAt(again) === 0 &&
          again.packet.extensions.atomicEth?.swapAdd === 42n,
        `wanted the atomic of psn+0 again, got ${s.describe(again)}`,
      );
      s.reply('RC_ATOMIC_ACKNOWLEDGE', 0, {
        extensions: { atomicAckEth: { original: 0x1122_3344_5566_7788n } },
      });
      await s.completed(['1:SUCCESS'], 'atomic');
      t.want((await s.peekU64(8192)) === 0x1122_3344_5566_7788n, 'the original is not in memory');
    },
  ),
  rule(
    'ATO-12',
    {
      title: 'an ACK of a later request does not complete an atomic: it is retransmitted',
      section: '9.7.5.1.4',
      needs: ['rc', 'post', 'completions'],
      text: 'The ACK shows that the answer was lost on the way. Without the answer there is no result.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('faa', { id: 1, length: 8, offset: 8192, remote: REMOTE });
      await s.post('send', { id: 2, length: 32 });
      await s.requests(2);
      s.acknowledge(1);
      await s.retransmits('RC_FETCH_ADD', 0, 'after the ACK: wanted the atomic', 600);
      await s.noCompletion('atomic without an answer', 30);
    },
  ),
  rule(
    'ATO-13',
    {
      title: 'an atomic answered by an ACK or a READ response is not done',
      section: '9.9.2.2',
      needs: ['rc', 'post', 'completions'],
      text: 'The program would take what is in its buffer for the result: a lock that nobody gave.',
    },
    async (t) => {
      for (const how of ['ACK', 'READ response']) {
        const s = await t.req({ timeout: 17, retryCnt: 1 });
        await s.post('faa', { id: 1, length: 8, offset: 8192, remote: REMOTE });
        await s.next();
        if (how === 'ACK') s.acknowledge(0);
        else s.reply('RC_RDMA_READ_RESPONSE_ONLY', 0, { payload: bytes(8) });
        await s.noSuccess(how);
      }
    },
  ),
  rule(
    'ATO-14',
    {
      title: 'the field for the value compared with is 0 in a FETCH ADD',
      section: '9.2, 9.4.5',
      should: true,
      needs: ['rc', 'post', 'completions'],
      text: 'It means nothing there. Other bytes in it may be memory that the device never cleared, and leave the host with it.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      let isClear = true;
      for (const n of [0, 1, 2]) {
        await s.post('faa', { id: n, length: 8, offset: 8192, remote: REMOTE, compareAdd: 42n });
        // An earlier one may be repeated meanwhile.
        const came = await s.allUntil((entry) => s.requestAt(entry) === n);
        const operands = came.at(-1)?.packet?.extensions.atomicEth;
        if (!t.want(operands !== undefined, `wanted an atomic, got ${s.list(came)}`)) return;
        isClear &&= operands?.compare === 0n;
        s.reply('RC_ATOMIC_ACKNOWLEDGE', n, { extensions: { atomicAckEth: { original: 0n } } });
        await s.completed([`${n}:SUCCESS`], 'atomic');
      }
      t.want(isClear, 'bytes in the field');
    },
  ),
];
