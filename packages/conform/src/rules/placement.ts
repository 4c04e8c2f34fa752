/** FLUSH and ATOMIC WRITE at the responder (IBTA vol 1 annex A19). */
import type { Case, ConnectionOptions } from '../case.ts';
import { bytes } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { type RuleSpec, rule } from '../rule.ts';
import type { Session } from '../session.ts';

/** Global visibility, of a range. */
const FETH = { placement: 1, selectivity: 0 } as const;
const RIGHTS: ConnectionOptions = { access: ['write', 'flush'], regionAccess: ['write', 'flush'] };
const NEEDS = ['rc', 'attributes', 'regions', 'flush'] as const;
const SIZE = 8;

function flush(s: Session, n: number, reth: { va?: bigint; rkey?: number; length?: number } = {}): void {
  s.send('RC_FLUSH', n, { ackReq: true, reth: { length: 64, ...reth }, extensions: { feth: FETH } });
}

/** An ATOMIC WRITE of 8 bytes, or of other ones. */
function atomicWrite(t: Case, s: Session, n: number, data: Uint8Array, at = 0, length = SIZE): void {
  t.use('atomicWrite');
  t.use('write');
  const reth = { va: s.va + BigInt(at), length };
  s.send('RC_ATOMIC_WRITE', n, { ackReq: true, payload: data, reth });
}

/** A READ response of no bytes, which is how both are answered. */
function isAnswer(s: Session, entry: Entry | undefined, n: number): boolean {
  const packet = entry?.packet;
  const { key } = packet?.info ?? {};
  return key === 'RC_RDMA_READ_RESPONSE_ONLY' && packet?.payload.length === 0 && s.at(entry) === n;
}

/** The fields of a request that its repetition must have. */
function asText({ packet }: Entry): string {
  const { reth, feth } = packet?.extensions ?? {};
  const range = `${reth?.va} ${reth?.rkey} ${reth?.length} ${feth?.placement} ${feth?.selectivity}`;
  return `${packet?.info.key} ${packet?.bth.psn} ${range} ${packet?.payload.join()}`;
}

async function answered(t: Case, s: Session, n: number, what: string): Promise<void> {
  const entry = await s.next();
  t.want(
    isAnswer(s, entry, n),
    `${what}: wanted a READ response of no bytes psn+${n}, got ${s.describe(entry)}`,
  );
}

/** A connection whose first FLUSH was answered. */
async function flushing(t: Case, options: ConnectionOptions = {}): Promise<Session> {
  const s = await t.rc({ ...RIGHTS, ...options });
  flush(s, 0);
  if (!isAnswer(s, await s.next(), 0)) t.skip('a FLUSH is not answered: PLC-01');
  return s;
}

const atomicWriteRule = (
  id: string,
  title: string,
  text: string,
  play: (t: Case) => Promise<void>,
  needs: RuleSpec['needs'] = ['rc', 'write', 'atomicWrite', 'memory'],
) => rule(id, { title, section: 'A19', needs, text }, play);

export const placementRules = [
  rule(
    'PLC-01',
    {
      title: 'a FLUSH is answered with a READ response of no bytes, with its PSN',
      section: 'A19',
      needs: NEEDS,
      text: 'The answer is the promise that the bytes in front of it are where they were asked to be.',
    },
    async (t) => {
      const s = await t.rc(RIGHTS);
      flush(s, 0);
      await answered(t, s, 0, 'FLUSH');
      flush(s, 1, { va: s.va + 64n });
      await answered(t, s, 1, 'the next FLUSH');
    },
  ),
  atomicWriteRule(
    'PLC-07',
    'an ATOMIC WRITE stores its 8 bytes, and is answered with a READ response of no bytes',
    'A pointer or a flag is published by it, behind the data that it stands for.',
    async (t) => {
      const s = await t.rc();
      for (const n of [0, 1]) {
        const data = bytes(SIZE, 7 + n);
        atomicWrite(t, s, n, data, SIZE * n);
        await answered(t, s, n, 'ATOMIC WRITE');
        await s.holds(SIZE * n, data, 'the 8 bytes are not in memory');
      }
    },
  ),
  atomicWriteRule(
    'PLC-02',
    'an ATOMIC WRITE at an address that is no multiple of 8, or of another length than 8, is an invalid request',
    'It could not be done in one piece.',
    async (t) => {
      for (const [what, at, length, payload] of [
        ['address + 4', 4, 8, 8],
        ['RETH of 4 bytes', 0, 4, 4],
        ['RETH of 16 bytes', 0, 16, 16],
        ['8 bytes announced, 4 sent', 0, 8, 4],
      ] as const) {
        const s = await t.rc();
        const before = await s.peek(0, 24);
        atomicWrite(t, s, 0, bytes(payload, 9), at, length);
        await s.nak('invalid', 0, what);
        await s.holds(0, before, `${what}: memory was changed`);
      }
    },
  ),
  rule(
    'PLC-03',
    {
      title: 'a FLUSH needs a key that is valid, also for no bytes, and the right of region and queue pair',
      section: 'A19, 9.7.4.1.5',
      needs: NEEDS,
      text: 'A FLUSH writes to storage: a peer without the right could wear it out, or slow down all others.',
    },
    async (t) => {
      for (const length of [64, 0]) {
        const s = await flushing(t);
        flush(s, 1, { rkey: 0xbad, length });
        await s.nak('access', 1, `another key, ${length} bytes`);
      }
      const region = await t.rc({ ...RIGHTS, regionAccess: ['write'] });
      flush(region, 0);
      await region.nak('access', 0, 'a region without the right');
      const pair = await t.rc({ ...RIGHTS, access: ['write'] });
      flush(pair, 0);
      await pair.nak('invalid', 0, 'a queue pair without the right');
    },
  ),
  rule(
    'PLC-08',
    {
      title: 'a repeated FLUSH is answered again',
      section: 'A19, 9.7.5.1.5',
      needs: NEEDS,
      text: 'The answer gets lost like any packet.',
    },
    async (t) => {
      const s = await flushing(t);
      flush(s, 0);
      await answered(t, s, 0, 'the repetition');
      flush(s, 1);
      await answered(t, s, 1, 'the next FLUSH');
    },
  ),
  atomicWriteRule(
    'PLC-04',
    'a repeated ATOMIC WRITE is answered again, and not executed',
    'A flag that was taken back must not come back.',
    async (t) => {
      const s = await t.rc();
      const [first, second] = [bytes(SIZE, 3), bytes(SIZE, 4)];
      atomicWrite(t, s, 0, first);
      await answered(t, s, 0, 'ATOMIC WRITE');
      atomicWrite(t, s, 1, second);
      await answered(t, s, 1, 'the next one');
      atomicWrite(t, s, 0, first);
      await answered(t, s, 0, 'the repetition');
      await s.holds(0, second, 'the repetition was executed');
    },
  ),
  rule(
    'PLC-06',
    {
      title: 'a FLUSH and an ATOMIC WRITE that nobody answers come again as they were',
      section: 'A19, 9.7.5.1.5',
      needs: ['rc', 'post', 'completions', 'placement'],
      text: 'A responder takes a repetition with another range for a fault, or flushes what nobody asked for.',
    },
    async (t) => {
      t.use('placement');
      const remote = { va: 0x1_2340n, rkey: 77 };
      for (const opcode of ['flush', 'atomic_write'] as const) {
        const s = await t.req({ timeout: 14 });
        await s.post(opcode, { id: 1, length: SIZE, remote });
        const [first] = await s.requests(1);
        const [again] = await s.collect(1);
        const { reth } = first?.packet?.extensions ?? {};
        const key = opcode === 'flush' ? 'RC_FLUSH' : 'RC_ATOMIC_WRITE';
        t.want(first?.packet?.info.key === key, `${opcode}: sent ${s.describe(first)}`);
        t.want(
          reth?.va === remote.va && reth.rkey === remote.rkey && reth.length === SIZE,
          `${opcode}: RETH is not the request’s`,
        );
        if (t.want(again !== undefined, `${opcode}: no repetition`) && first !== undefined)
          t.want(asText(first) === asText(again), `${opcode}: the repetition is another packet`);
        s.reply('RC_RDMA_READ_RESPONSE_ONLY', 0, { payload: new Uint8Array(0) });
        await s.completed(['1:SUCCESS'], opcode);
      }
    },
  ),
  atomicWriteRule(
    'PLC-05',
    'an ATOMIC WRITE to a queue pair with no room to remember it is an invalid request',
    'Its answer has to be kept for a repetition, as those of READs and atomics are.',
    async (t) => {
      const s = await t.rc({ maxDestRdAtomic: 0 });
      const before = await s.peek(0, SIZE);
      atomicWrite(t, s, 0, bytes(SIZE, 5));
      await s.nak('invalid', 0, 'ATOMIC WRITE');
      await s.holds(0, before, 'memory was changed');
    },
    ['rc', 'attributes', 'write', 'atomicWrite', 'memory'],
  ),
];
