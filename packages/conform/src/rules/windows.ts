/** Memory windows, regions registered anew, protection domains (IBTA vol 1 §10.6). */
import type { Case } from '../case.ts';
import type { Right, Window, WindowSpec } from '../device.ts';
import { bytes } from '../device-side.ts';
import { type Rule, type RuleSpec, rule } from '../rule.ts';
import type { Session } from '../session.ts';

/** Where the windows of these rules are in the region. */
const [OFFSET, LENGTH] = [256, 64];

/** A connection with a window in the middle of its region. */
async function withWindow(t: Case, spec: Partial<WindowSpec> = {}): Promise<{ s: Session; window: Window }> {
  const s = await t.rc({ windows: true });
  const window = await s.bind({
    type: 2,
    offset: OFFSET,
    length: LENGTH,
    access: ['write', 'read'],
    ...spec,
  });
  return { s, window };
}

/** A WRITE of 8 bytes by the key of a window, `at` bytes in the region. */
function write(s: Session, n: number, rkey: number, at = OFFSET): Uint8Array {
  const data = bytes(8, n + 1);
  s.write(n, data, at, { reth: { va: s.va + BigInt(at), rkey } });
  return data;
}

/** The WRITE is executed. */
async function isOpen(s: Session, n: number, rkey: number, at = OFFSET): Promise<void> {
  const data = write(s, n, rkey, at);
  await s.ack(n, 'a WRITE through the window');
  await s.holds(at, data, 'a WRITE through the window: its bytes are not in memory');
}

/** The WRITE is refused. */
async function isShut(s: Session, n: number, rkey: number, of: string, at = OFFSET): Promise<void> {
  write(s, n, rkey, at);
  await s.nak('access', n, of);
}

function windowRule(
  id: string,
  title: string,
  text: string,
  play: Rule['play'],
  more: Partial<RuleSpec> = {},
) {
  const needs = ['rc', 'write', 'windows', 'completions', 'memory'] as const;
  return rule(id, { title, section: '10.6.7.2', needs, text, ...more }, play);
}

const bounded = (type: 1 | 2) => async (t: Case) => {
  for (const [place, at] of [
    ['one byte past its end', OFFSET + LENGTH - 7],
    ['one byte before it', OFFSET - 1],
  ] as const) {
    const { s, window } = await withWindow(t, { type });
    await isOpen(s, 0, window.rkey);
    await isOpen(s, 1, window.rkey, OFFSET + LENGTH - 8);
    await isShut(s, 2, window.rkey, place, at);
  }
};

const ONLY_PART = 'A program gives out a window because the peer may reach this part and no other.';

export const windowRules = [
  windowRule(
    'KEY-12',
    'a window of type 1 opens its range of the region, and not a byte more',
    ONLY_PART,
    bounded(1),
  ),
  windowRule(
    'KEY-14',
    'a window of type 2 opens its range of the region, and not a byte more',
    ONLY_PART,
    bounded(2),
  ),
  windowRule(
    'KEY-13',
    'a window of type 2 is of the queue pair that it was bound through: others are refused',
    'A key that another peer learned must not open the memory.',
    async (t) => {
      const { s, window } = await withWindow(t);
      const other = await t.rc({ windows: true });
      const at = Number(s.va - other.va) + OFFSET;
      await isShut(other, 0, window.rkey, 'through another queue pair', at);
      await isOpen(s, 0, window.rkey);
    },
    { section: '10.6.7.2.3' },
  ),
  windowRule(
    'KEY-15',
    'a window of type 2 that a SEND invalidated is shut',
    'The peer gives the memory back with its last message; the program uses it again at once.',
    async (t) => {
      const { s, window } = await withWindow(t);
      await s.receive({ id: 7, offset: 1024, length: 64 });
      await isOpen(s, 0, window.rkey);
      const extensions = { ieth: window.rkey };
      s.send('RC_SEND_ONLY_WITH_INVALIDATE', 1, { ackReq: true, payload: bytes(8), extensions });
      await s.ack(1, 'a SEND that invalidates the window');
      await s.completed(['7:SUCCESS'], 'a SEND that invalidates the window');
      await isShut(s, 2, window.rkey, 'a window that was invalidated');
    },
    { needs: ['rc', 'write', 'windows', 'completions', 'memory', 'receives'], section: '9.4.1.1' },
  ),
  ...(
    [
      ['KEY-19', 1],
      ['KEY-20', 2],
    ] as const
  ).map(([id, type]) =>
    windowRule(
      id,
      `a window of type ${type} for READs refuses a WRITE, and serves a READ`,
      'The rights of a window are its own, and less than those of its region.',
      async (t) => {
        const { s, window } = await withWindow(t, { type, access: ['read'] });
        s.read(0, 16, 0, { reth: { va: s.va + BigInt(OFFSET), rkey: window.rkey } });
        const answer = await s.next();
        const is = answer?.packet?.info.key === 'RC_RDMA_READ_RESPONSE_ONLY' && s.at(answer) === 0;
        t.want(is, `a READ through the window: wanted a response, got ${s.describe(answer)}`);
        await isShut(s, 1, window.rkey, 'a WRITE');
      },
      { needs: ['rc', 'write', 'read', 'windows', 'completions'] },
    ),
  ),
  windowRule(
    'KEY-21',
    'a window that was freed is shut',
    'The memory behind it is used for something else.',
    async (t) => {
      const { s, window } = await withWindow(t, { type: 1 });
      await isOpen(s, 0, window.rkey);
      await window.free();
      await isShut(s, 1, window.rkey, 'a window that was freed');
    },
  ),
  rule(
    'KEY-09',
    {
      title: 'the key of a region of another protection domain is refused',
      section: '10.6.3',
      needs: ['rc', 'write', 'domains'],
      text: 'Domains keep the clients of one program apart.',
    },
    async (t) => {
      const s = await t.rc();
      const { va, rkey } = await s.foreignRegion();
      s.write(0, bytes(8), 0, { reth: { va, rkey } });
      await s.nak('access', 0);
    },
  ),
  rule(
    'KEY-11',
    {
      title: 'a region that was registered anew has its new rights, and not the old ones',
      section: '10.6.3',
      needs: ['rc', 'write', 'read', 'reregister'],
      text: 'A program takes a right away from a peer without giving up the memory.',
    },
    async (t) => {
      const rights: readonly Right[] = ['read'];
      const s = await t.rc();
      s.write(0, bytes(8));
      await s.ack(0);
      await s.reregister(rights);
      s.read(1, 16);
      const answer = await s.next();
      const is = answer?.packet?.info.key === 'RC_RDMA_READ_RESPONSE_ONLY' && s.at(answer) === 1;
      t.want(is, `a right that it has now: wanted a response, got ${s.describe(answer)}`);
      s.write(2, bytes(8));
      await s.nak('access', 2, 'a right that it had');
    },
  ),
];
